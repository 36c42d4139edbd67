"""`nescio methods`: what expressions may name, with one line each."""

from __future__ import annotations

import inspect
from difflib import get_close_matches

from nescio.cli.voice import Voice
from nescio.errors import InputError
from nescio.expressions import catalogue

ROOMS = {
    "methods": "methods: --method, combined by a >> b, n * a, a.on('pattern')",
    "families": "families, for VI(...)",
    "structures": "structures, for Laplace(...)",
    "schedules": "schedules, for schedule=..., step_size=Cycles(...) and precondition=RMSprop(...)",
    "laws": "laws: --prior, numbers of laws and of likelihoods",
    "likelihoods": "likelihoods: --likelihood",
    "nets": "networks: --net; inputs, outputs, channels and size are those of the data",
}


def methods(voice: Voice, name: str | None) -> None:
    rooms = catalogue()
    if name is not None and name not in ROOMS:
        detail(voice, name)
        return
    chosen = [name] if name else list(ROOMS)
    for room in chosen:
        entries = rooms[room].values()
        voice.say(ROOMS[room])
        voice.table(("", ""), [(f"  {entry.name}", entry.line) for entry in entries])
        if not voice.as_json:
            voice.console.print()
    listed = {room: {entry.name: entry.line for entry in rooms[room].values()} for room in chosen}
    voice.end(listed)


def detail(voice: Voice, name: str) -> None:
    """One entry with its arguments and their defaults."""
    for room in ROOMS:
        if entry := catalogue()[room].get(name):
            voice.say(f"{name}: {entry.line}")
            text = inspect.getdoc(entry.value) or ""
            if text and not text.startswith(f"{name}("):
                voice.say(text)
            arguments = {}
            if callable(entry.value):
                for parameter in inspect.signature(entry.value).parameters.values():
                    usual = parameter.default
                    arguments[parameter.name] = "" if usual is inspect.Parameter.empty else shown(usual)
            voice.table(("argument", "default"), list(arguments.items()))
            voice.end({"name": name, "room": room, "arguments": arguments})
            return
    known = [*ROOMS, *(entry for room in ROOMS for entry in catalogue()[room])]
    near = [k for k in known if k.lower() == name.lower()] or get_close_matches(name, known)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise InputError("the name must be in the catalogue", name, f"{hint}there are {', '.join(known)}")


def shown(value: object) -> str:
    return value.__name__ if isinstance(value, type) else f"{value}"
