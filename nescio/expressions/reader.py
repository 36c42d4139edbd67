"""The walk over an expression, node by node: names, calls, numbers and the library's combinators, and nothing else."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, final, get_type_hints

from nescio.errors import InputError, NescioError, UnsupportedError
from nescio.expressions.catalogue import PREFIXES, catalogue
from nescio.expressions.place import fault, unknown
from nescio.expressions.typed import as_tensor, fits, named, takes_tensor
from nescio.infer.method import Method
from nescio.laws.law import Law, Learned

VERBS: dict[type, tuple[str, ...]] = {Law: ("per", "sqrt"), Learned: ("per",), Method: ("on", "then", "repeat")}
ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}


@final
@dataclass(frozen=True)
class Reader:
    """One expression: its text, the rooms in which its bare names are looked up, in order, and the numbers that have names."""

    text: str
    rooms: tuple[str, ...]
    names: Mapping[str, int]

    def fault(self, node: ast.AST, must: str, got: str, remedy: str) -> InputError:
        return fault(self.text, node, must, got, remedy)

    def visit(self, node: ast.AST) -> Any:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as value) if value not in (
                math.inf,
                -math.inf,
            ):
                return value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return tuple(self.visit(part) for part in parts)
            case ast.Dict(keys=keys, values=values) if all(keys):
                return {self.key(key): self.visit(value) for key, value in zip(keys, values, strict=True)}
            case ast.Name() | ast.Attribute():
                return self.named(node)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
                value = self.number(operand)
                return -value if isinstance(node.op, ast.USub) else value
            case ast.BinOp():
                return self.combine(node)
            case ast.Call():
                return self.call(node)
        got = ast.unparse(node)[:40] if isinstance(node, ast.expr) else type(node).__name__
        raise self.fault(node, "only names, calls, numbers, >> and n * are allowed", got, "leave it out")

    def key(self, node: ast.AST | None) -> Any:
        value = self.visit(node)  # type: ignore[arg-type]
        if not isinstance(value, (str, int, float)):
            raise self.fault(node, "a key must be text", type(value).__name__, "write {'0.*': Normal(0, 1)}")  # type: ignore[arg-type]
        return value

    def number(self, node: ast.AST) -> float:
        value = self.visit(node)
        if not fits(value, float):
            raise self.fault(node, "a number must stand here", type(value).__name__, "write for instance 0.1")
        return value

    def combine(self, node: ast.BinOp) -> Any:
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, ast.RShift) or isinstance(left, Method) or isinstance(right, Method):
            if isinstance(node.op, ast.RShift) and isinstance(left, Method) and isinstance(right, Method):
                return left >> right
            if isinstance(node.op, ast.Mult) and isinstance(left, int) and isinstance(right, Method):
                return self.attempt(node, lambda: right.repeat(left))
            got = f"{ast.unparse(node)[:60]}"
            raise self.fault(
                node, "methods combine as a >> b and n * a", got, "write for instance 8 * (MAP() >> MCLMC())"
            )
        work = ARITHMETIC.get(type(node.op))
        if work is None or not fits(left, float) or not fits(right, float):
            raise self.fault(node, "numbers combine by + - * /", ast.unparse(node)[:60], "write the number itself")
        return self.attempt(node, lambda: work(left, right))

    # ---- names -------------------------------------------------------------------------------------------------

    def named(self, node: ast.Name | ast.Attribute) -> Any:
        dotted = ast.unparse(node)
        prefix, _, name = dotted.rpartition(".")
        if not prefix and name in self.names:
            return self.names[name]
        if prefix and prefix not in PREFIXES:
            raise unknown(self.text, node, "what stands before a dot", prefix, list(PREFIXES), len(PREFIXES))
        room = PREFIXES[prefix] if prefix else None
        rooms = (*((room,) if room else self.rooms), "hidden")
        for each in rooms:
            if entry := catalogue()[each].get(name):
                return entry.value
        known = [*self.names, *(key for each in rooms[:-1] for key in catalogue()[each])]
        listed = len(self.names) + len(catalogue()[rooms[0]])
        raise unknown(self.text, node, "a name", name, list(dict.fromkeys(known)), listed)

    # ---- calls -------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Any:
        target = self.target(node.func)
        for word in node.keywords:
            if word.arg is None:
                raise self.fault(word, "arguments must be written out", "**", "name them one by one")
        args = [self.visit(arg) for arg in node.args]  # a starred one is refused by visit
        words = {word.arg: self.visit(word.value) for word in node.keywords if word.arg is not None}
        if target is partial:
            return self.partial(node, args, words)
        bound = self.bind(node, target, args, words)
        return self.attempt(node, lambda: target(*bound.args, **bound.kwargs))

    def target(self, node: ast.expr) -> Callable[..., Any]:
        """What is called: an entry of the catalogue, or a verb of a value, `.per("input")`."""
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in PREFIXES:
            value = self.visit(node.value)
            verbs = next((own for kind, own in VERBS.items() if isinstance(value, kind)), ())
            if node.attr not in verbs:
                near = f"there are .{', .'.join(verbs)}" if verbs else "leave it out"
                raise self.fault(node, f"a verb of {type(value).__name__} must be known", f".{node.attr}", near)
            return getattr(value, node.attr)
        value = self.visit(node)
        if not callable(value) or isinstance(value, (Method, Law, Learned)):
            raise self.fault(node, "only what makes something can be called", str(value)[:40], "leave the brackets out")
        return value

    def bind(self, node: ast.Call, target: Any, args: list[Any], words: dict[str, Any]) -> inspect.BoundArguments:
        signature, name = inspect.signature(target), getattr(target, "__name__", type(target).__name__)
        known = [p.name for p in signature.parameters.values()]
        for word in node.keywords:
            if word.arg not in known:
                raise unknown(self.text, word, f"an argument of {name}", str(word.arg), known, len(known))
        try:
            bound = signature.bind(*args, **words)
        except TypeError as error:
            takes = f"{name}{signature}" if len(known) <= 4 else f"{name}({', '.join(known)})"
            raise self.fault(node, "the arguments must fit", str(error), f"it takes {takes.split(' ->')[0]}") from None
        hints = hints_of(target)
        nodes = [*node.args, *(word.value for word in node.keywords)]
        places = dict(zip([*known[: len(args)], *words], nodes, strict=False))
        for key, value in list(bound.arguments.items()):
            several = signature.parameters[key].kind is inspect.Parameter.VAR_POSITIONAL
            if key in hints:
                bound.arguments[key] = self.checked(places.get(key, node), name, key, value, hints[key], several)
        return bound

    def checked(self, node: ast.AST, name: str, key: str, value: Any, hint: Any, several: bool) -> Any:
        """The value, which is of the annotated kind; a tuple of numbers is a tensor where one is wanted."""
        for each in value if several else (value,):
            if not fits(each, hint):
                if takes_tensor(hint) and fits(tensor := as_tensor(each), hint):
                    return tensor
                got = f"{each!r}"[:60]
                raise self.fault(node, f"{key} of {name} must be {named(hint)}", got, "write another value there")
        return value

    def partial(self, node: ast.Call, args: list[Any], words: dict[str, Any]) -> Any:
        """Options of an optimiser: partial(SGD, momentum=0.9)."""
        if len(args) != 1 or args[0] not in {e.value for e in catalogue()["optimizers"].values()}:
            raise self.fault(
                node, "partial binds options of an optimiser", ast.unparse(node)[:60], "partial(SGD, momentum=0.9)"
            )
        self.bind(node, args[0], [()], words)
        return partial(args[0], **words)

    def attempt(self, node: ast.AST, make: Callable[[], Any]) -> Any:
        """What a constructor says of its arguments, at its place."""
        try:
            return make()
        except NescioError as error:
            kind = UnsupportedError if isinstance(error, UnsupportedError) else InputError
            placed = self.fault(node, error.must, error.got, error.remedy)
            raise kind(placed.must, placed.got, placed.remedy) from None
        except (TypeError, ValueError, ArithmeticError, RuntimeError, AttributeError) as error:
            raise self.fault(node, "the values must fit", str(error).split("\n")[0][:120], "change them") from None


def hints_of(target: Any) -> dict[str, Any]:
    """Annotations of the arguments, those of inherited fields included; none where they cannot be read."""
    try:
        return get_type_hints(target)
    except (NameError, TypeError):
        return {}
