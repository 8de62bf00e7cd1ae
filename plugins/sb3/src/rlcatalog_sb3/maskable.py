"""`CatalogMaskablePolicy`: a policy for sb3-contrib's MaskablePPO whose parts come from the catalog."""

from __future__ import annotations

from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy

from rlcatalog_sb3.policies import WithoutMemory


class CatalogMaskablePolicy(WithoutMemory, MaskableActorCriticPolicy):
    """A policy for MaskablePPO with the catalog's preprocessor, model and distribution.

    Masks stand in the observation (`action_mask_key` of the model config), come from `env.action_masks()`, or both;
    what either forbids is forbidden. MaskablePPO asks the environment for its masks; where they stand in the
    observation alone, `for_sb3(env)` hands them out, or `learn(..., use_masking=False)` leaves the question out.
    """
