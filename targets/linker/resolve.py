"""Bind names: every global symbol of every object to the one definition, or to the library that has it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .elf import DEFAULT, IFUNC, LOCAL, PROTECTED, WEAK, LinkError, Object, Relocation, Section, Symbol


@dataclass
class Names:
    """The outcome: definitions by name, imports (undefined here, found in `needed` libraries) and exports."""

    definitions: dict[str, Symbol]
    imports: dict[str, Symbol]
    needed: list[str]
    exports: list[Symbol]


def resolve(
    objects: list[Object],
    sections: list[Section],
    libraries: Mapping[str, Iterable[str]],
    exports: Iterable[str] | None,
) -> Names:
    """Bind the symbols that `sections` refer to, and point their relocations at the definitions.

    The first strong definition wins over weak ones, the first weak one over later ones. `exports` None exports every
    global symbol that is not hidden.
    """
    definitions = _definitions(objects)
    imports: dict[str, Symbol] = {}
    undefined: dict[str, Symbol] = {}
    kept = set(map(id, sections))
    homes = {name: library for library, names in libraries.items() for name in names}
    for section in sections:
        for relocation in section.relocations:
            symbol = _bound(relocation, definitions)
            if symbol.section is not None and id(symbol.section) not in kept:
                where = f"{section.object}: {section.name}"
                raise LinkError(f"{where} refers to '{symbol.name}' in {symbol.section.name}, which is not linked")
            if symbol.type == IFUNC:
                raise LinkError(f"{symbol.object}: '{symbol.name}' is an indirect function; they are not supported")
            if symbol.defined or (symbol.binding == WEAK and symbol.name not in homes):
                continue
            (imports if symbol.name in homes else undefined).setdefault(symbol.name, symbol)
    if undefined:
        _refuse(undefined, [*definitions, *homes])
    used = {homes[name] for name in imports}
    return Names(definitions, imports, [lib for lib in libraries if lib in used], _exported(definitions, exports))


def _definitions(objects: list[Object]) -> dict[str, Symbol]:
    found: dict[str, Symbol] = {}
    for obj in objects:
        for symbol in obj.symbols:
            if symbol.binding == LOCAL or not symbol.defined:
                continue
            other = found.get(symbol.name)
            if other is None or (other.binding == WEAK and symbol.binding != WEAK):
                found[symbol.name] = symbol
            elif other.binding != WEAK and symbol.binding != WEAK:
                raise LinkError(f"symbol '{symbol.name}' is defined twice: in {other.object} and in {symbol.object}")
    return found


def _bound(relocation: Relocation, definitions: dict[str, Symbol]) -> Symbol:
    symbol = relocation.symbol
    if symbol.binding != LOCAL:
        relocation.symbol = symbol = definitions.get(symbol.name, symbol)
    elif not symbol.defined:
        raise LinkError(f"{symbol.object}: a relocation has no symbol")
    return symbol


def _exported(definitions: dict[str, Symbol], exports: Iterable[str] | None) -> list[Symbol]:
    if exports is None:
        return [s for s in definitions.values() if s.visibility in (DEFAULT, PROTECTED)]
    wanted = list(dict.fromkeys(exports))
    missing = [name for name in wanted if name not in definitions]
    if missing:
        raise LinkError(f"no object defines {_list(missing)}, which the image must export")
    return [definitions[name] for name in wanted]


def _refuse(undefined: dict[str, Symbol], known: list[str]) -> None:
    lines = []
    for name, symbol in undefined.items():
        near = difflib.get_close_matches(name, known, 1)
        lines.append(f"'{name}' (used by {symbol.object}{f'; did you mean {near[0]}?' if near else ''})")
    raise LinkError(f"undefined symbol{'s' if len(lines) > 1 else ''} {', '.join(lines)}")


def _list(names: list[str]) -> str:
    return ", ".join(f"'{n}'" for n in names)
