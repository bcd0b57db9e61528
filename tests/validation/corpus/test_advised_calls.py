"""Calls that rules advise work: programs end, with the same result and smaller savings left."""

from pathlib import Path

import pytest
from advised_calls import PROGRAMS, WITHOUT, advised_calls, line_of, run


def test_each_call_has_a_program_or_is_listed_without() -> None:
    listed = {slug: set(calls) for slug, calls in WITHOUT.items()}
    for program in PROGRAMS.values():
        listed.setdefault(program.rule, set()).update(program.calls)
    missing = {slug: calls - listed.get(slug, set()) for slug, calls in advised_calls().items()}
    assert not {slug: calls for slug, calls in missing.items() if calls}


@pytest.mark.whole_program
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_advised_works(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    before, after = (run(program, advised, tmp_path / str(advised)) for advised in (False, True))
    print(line_of(name, before, after))
    assert before.result == after.result
    assert before.found
    assert not after.found or after.at_stake < before.at_stake
