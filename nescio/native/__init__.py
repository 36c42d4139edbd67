"""Functions of chains as C of their own: small networks, whose operations take less time than it takes to call them.

A function is traced for one chain; `program` turns its operations into passes over memory and products, `write` into text, `build` into
machine code, in about a second. What is not in its repertoire is Unsupported, and left to torch's compiler.
"""

from nescio.native.chainwise import Chainwise, single
from nescio.native.places import Unsupported

__all__ = ["Chainwise", "Unsupported", "single"]
