"""Frameworks: PyTorch and TensorFlow by name, whether they are installed, and where their code stands.

Rooms above ask the table here for what a framework does (its engine, its tensor operations, its host class) and so
import no framework by name.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
