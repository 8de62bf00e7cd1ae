"""Names that users give to attributes of their models: those of RLlib's example models and docs,
and of ours.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: What RLlib's example models, its built-in nets and its docs set on `self`.
OF_RLLIB = _words(
    """
    _adv_value_branch _convs _cur_value _curr_value _fake_value_branch _features _hidden_layers
    _inputs _last_batch_size _last_flat_in _last_output _last_value _last_vf _logits _logits_branch
    _memory _model_out _num_objects _output _probs _reward_encoder _sens_dim _stop_grad _val_branch
    _value _value_branch _value_branch_separate _value_out a1_logits a2_hidden a2_logits a2_vec
    action_a1_model action_embed_model action_ids action_model action_space_struct actor
    actor_layers add_graph adv attention attention_dim attn attn_gru average axis_wise base
    base_model batch_norm cell cell_size central_vf central_vf_dense central_vf_in central_vf_out
    cnn cnn_layers cnns concat context_rnn conv conv1 conv_layers core critic critic_layers
    custom_model_config decoder dense device discriminator dropout emb embed_dim embedding encoder
    encoder_optimizer epsilon expert extra fc fc1 fc2 fc_branch fc_size fcnet feature_size features
    first_layer flatten flattened_input_space free_log_std global_net gru h_size head heads held
    hidden hidden_layers hidden_size icm imitation_loss imitation_loss_metric initial_state inner
    input_dim input_layer input_size inputs internal_action_model internal_model is_masked
    is_time_major_ keras_model last_layer last_state layer_out_1 layers linear local_net log_std
    logit_branch logits logits_and_value_model lstm lstm1 lstm_cell lstm_state_size mask masked
    max_actions max_seq_len memory_inference memory_tau memory_training message mlp model model_out
    modules_list multi_value n_agents net no_masking norm norms num_actions num_agents num_frames
    num_heads num_layers num_transformer_units obs obs_shape obs_size one_hot optimizer option
    original_space out output output_size outputs parametric pass_through past_actions past_obs
    policy policy_head policy_loss policy_loss_metric post_fc_stack pre_fc prev_action prev_actions
    prev_reward prev_rewards q_head q_model recon register reward_model rnn rnn_hidden rnn_model
    seq_len seq_lens shared shared_layers sigmoid size state state_dim state_out states std
    sub_model target target_q tau temperature time torch_sub_model training_step trunk twin_q_net
    use_n_prev_actions use_n_prev_rewards use_prev_action use_prev_reward value value_branch
    value_branch_net value_fn value_head value_layer value_net value_out value_trunk values vf
    vf_branch vf_share_layers view_1d views vis vis_encoder visual_size_out w weights width
    """
)

#: What the kernel's bases once called their own, and what they offer beside RLlib's contract.
OF_THE_KERNEL = _words(
    """
    _check_trace _flat _flatten _found _has_context _held _inside _is_trunk _is_vector _last_output
    _ops _padding _padding_of _preprocessor _real_rows _registered _remember _rest _run _trace
    _unclaimed canonical get_weights held inner inner_models set_weights variable_axes
    """
)

#: RLlib's contract: names that mean the same there.
CONTRACT = _words(
    """
    action_space context custom_loss forward forward_rnn framework get_initial_state is_time_major
    last_output metrics model_config name num_outputs obs_space register_variables time_major
    trainable_variables update_ops value_function variables view_requirements
    """
)


@functools.cache
def harvested() -> frozenset[str]:
    """Return what docs, examples and the packages here set on `self`."""
    found: set[str] = set()
    for folder in ("docs", "examples", "plugins", "builtin_models"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix == ".md":
                found |= set(
                    re.findall(r"\bself\.(\w+)\b[^=\n(]*=[^=]", path.read_text(encoding="utf-8"))
                )
            elif path.suffix == ".py" and ".venv" not in path.parts:
                found |= set(_stored(ast.parse(path.read_text(encoding="utf-8"))))
    return frozenset(found)


def _stored(tree: ast.AST) -> list[str]:
    return [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    ]


def all_names() -> list[str]:
    """Return every name a user may give, in order: without RLlib's contract, and what is Python's
    own.
    """
    found = {*OF_RLLIB, *OF_THE_KERNEL, *harvested()} - CONTRACT
    return sorted(name for name in found if not name.startswith(("_rlcatalog", "__")))
