"""The table of cases that every implementation reads, and values near the grammar."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest

from evenkeel_brownout import Brownout, Decision
from evenkeel_brownout._decision import FULL, VALUE_BYTES_MAX

from .conftest import lines_of, text_of

TABLE = json.loads(
    (Path(__file__).parents[2] / "conformance" / "headers.json").read_text(encoding="utf-8")
)
CASES: List[Dict[str, Any]] = TABLE["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_the_table(case: Dict[str, Any]) -> None:
    decision = Decision.read(lines_of(case))
    assert {part: decision.allows(part) for part in case["parts"]} == case["parts"]
    assert decision.allows("not-in-the-table") == case["others"]
    assert decision.allows() == case["others"]
    passes_on = case["passes_on"]
    expected = {} if passes_on is None else {"Brownout-Optional": text_of(passes_on)}
    assert Brownout(decision).outgoing_headers() == expected


def test_the_table_is_whole() -> None:
    assert len(CASES) >= 100
    assert TABLE["value_bytes_max"] == VALUE_BYTES_MAX


def test_spaces_around_do_not_count() -> None:
    assert Decision.read(["  ?0;comments  "]) == Decision.read(["?0;comments"])
    assert not Decision.read([" ?0 "]).item
    assert Decision.read(["\t?0"]) == FULL


def test_whatever_is_accepted_is_printable_ascii_and_answers() -> None:
    rng = random.Random(1)
    accepted = 0
    for _ in range(20_000):
        value = "?0" + "".join(rng.choices(';= a*"\\?01.-@:%c3b,A\t\n\xe4', k=rng.randrange(14)))
        decision = Decision.read([value])
        if decision.value is None:
            assert decision == FULL
            continue
        accepted += 1
        assert all(" " <= letter <= "~" for letter in decision.value)
        assert decision.allows("not-in-the-alphabet") is False
        assert len(decision.parts) <= value.count(";")
    assert accepted > 100


@pytest.mark.parametrize("fill", [";a", '"', "\\\\", "1", "a", ":", "%", "%41", " ", "@", "?"])
def test_the_time_is_linear(fill: str) -> None:
    begin = time.perf_counter()
    for prefix in ("?0;a=", '?0;a="', '?0;a=%"', "?0;a=:", "?0;", "?0"):
        Decision.read([(prefix + fill * VALUE_BYTES_MAX)[:VALUE_BYTES_MAX]])
    assert time.perf_counter() - begin < 1
