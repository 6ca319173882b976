"""Configurations that differ in the lengths of their requests alone, and what those tell. Pure.

A trial offers one mix of input and output tokens, and so do all trials of a run, so that joules of
one kind of token can be told from those of the other by several runs alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tokenwatt_site.claims.mixes import mix_windows
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.energy.per_token import MixWindow, TokenEnergy, token_energy
from tokenwatt_site.evidence.power import is_masked
from tokenwatt_site.spec import Mode

LENGTHS = frozenset({"workload", "input_tokens", "output_tokens"})
"""Of a setup what may differ."""


@dataclass(frozen=True, eq=False)
class Mixes:
    """All configurations of one setup but for lengths; `configurations` are two at least.

    One value for all of them, so that their evidence is read once.
    """

    configurations: tuple[Configuration, ...]

    @cached_property
    def apart(self) -> TokenEnergy | str:
        """What a token of each kind takes by the windows of all, or why that is unknown.

        Raises:
            InputError: evidence is no longer what was verified.
        """
        windows: list[MixWindow] = []
        boards: set[frozenset[str]] = set()
        for each in self.configurations:
            head = each.headline
            evidence = head.evidence
            if evidence.power is not None:
                boards.add(frozenset(board.uuid for board in evidence.power.boards))
            windows += mix_windows(head.run.spec, evidence, head.run_id)
        if any(is_masked(uuid) for own in boards for uuid in own):
            return "UUIDs are masked, so that nobody knows whether the boards were the same"
        if len(boards) > 1:
            return (
                "the runs are not all of the same boards, whose meters may differ by more than"
                " mixes"
            )
        return token_energy(windows)


def other_mixes(configurations: Iterable[Configuration]) -> Mapping[str, Mixes]:
    """Return for each that has them the configurations of its setup but for lengths, itself too.

    Only headline runs of one key and mode, which nobody took back, and none of conversations, whose
    prompts are partly cached.
    """
    found: dict[tuple[str, bool, str], list[Configuration]] = {}
    for each in configurations:
        setup, head = each.setup, each.headline
        if setup.power.sensor == "none" or setup.conversation is not None:
            continue
        if head.standing.retracted:
            continue
        rest = json.dumps(setup.model_dump(mode="json", exclude=set(LENGTHS)), sort_keys=True)
        found.setdefault((rest, each.simulated, head.keyid), []).append(each)
    # A run is unpacked for its mode: of thousands that stand alone that would take long.
    groups = [group for alike in found.values() if len(alike) > 1 for group in _by_mode(alike)]
    return {c.id: group for group in groups for c in group.configurations}


def _by_mode(alike: Iterable[Configuration]) -> Iterator[Mixes]:
    modes: dict[Mode, list[Configuration]] = {}
    for each in alike:
        modes.setdefault(each.headline.run.spec.protocol.mode, []).append(each)
    return (Mixes(tuple(group)) for group in modes.values() if len(group) > 1)
