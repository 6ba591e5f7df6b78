"""What a header decides: a Boolean item with parameters, RFC 9651 (and RFC 8941 before it).

``?0;comments`` leaves everything optional out but comments. A part is decided by the last
parameter of its name; if there is none, or it is no Boolean, by the item. A value that is not
well-formed as a whole decides nothing, since a decision half understood is none: full content.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Mapping, Optional, Sequence
from urllib.parse import unquote_to_bytes

VALUE_BYTES_MAX = 4096
"""The longest value that is read, in bytes."""

_KEY = r"[a-z*][a-z0-9_\-.*]*"
# One alternative for each type of RFC 9651, section 3.3. Each begins with another character and
# none can match in two ways, so the time is linear in the length of the value.
_BARE_ITEM = r"""
      \?[01]                                             # Boolean
    | -?(?:[0-9]{1,12}\.[0-9]{1,3}|[0-9]{1,15})          # Decimal, Integer
    | "(?:[\ !\#-\[\]-~]|\\["\\])*"                      # String
    | [A-Za-z*][A-Za-z0-9!\#$%&'*+\-.^_`|~:/]*           # Token
    | :[A-Za-z0-9+/]*={0,2}:                             # Byte Sequence
    | @-?[0-9]{1,15}                                     # Date
    | %"(?:[\ !\#$&-~]|%[0-9a-f]{2})*"                   # Display String
"""
_PARAMETER = re.compile(rf";\ *({_KEY})(?:=({_BARE_ITEM}))?", re.VERBOSE)


@dataclass(frozen=True)
class Decision:
    """Which optional parts are computed."""

    item: bool = True
    """Whether the parts are that have no word of their own."""

    parts: Mapping[str, bool] = field(default_factory=dict)
    """The parts that have, by name."""

    value: Optional[str] = None
    """The header it was read from; ``None`` if there was none, or none that could be read."""

    def allows(self, part: str = "") -> bool:
        """Whether this part is computed; without a name, the page's only one."""
        return self.parts.get(part, self.item)

    @classmethod
    def read(cls, lines: Sequence[str]) -> Decision:
        """Reads the header's lines, decoded as Latin-1.

        None, several, or one that is malformed or over 4096 bytes: everything is computed.
        """
        if len(lines) != 1 or len(lines[0]) > VALUE_BYTES_MAX:
            return FULL
        value = lines[0].strip(" ")
        if value[:2] not in ("?0", "?1"):
            return FULL
        parts = _read_parameters(value[2:])
        return FULL if parts is None else cls(value[1] == "1", parts, value)


FULL = Decision()


def _read_parameters(text: str) -> Optional[Mapping[str, bool]]:
    """The Boolean ones by name, or ``None`` if anything is malformed."""
    parts = {}
    at = 0
    while at < len(text):
        parameter = _PARAMETER.match(text, at)
        if parameter is None:
            return None
        name, bare_item = parameter.groups()
        if bare_item in (None, "?0", "?1"):
            parts[name] = bare_item != "?0"
        elif bare_item.startswith("%") and not _is_display_string(bare_item):
            return None
        else:
            parts.pop(name, None)  # the last one wins, and decides nothing
        at = parameter.end()
    return parts


def _is_display_string(bare_item: str) -> bool:
    try:
        unquote_to_bytes(bare_item).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
