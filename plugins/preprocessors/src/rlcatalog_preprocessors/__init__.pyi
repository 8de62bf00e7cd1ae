from .graph import GraphValues as GraphValues
from .text import TextValues as TextValues
