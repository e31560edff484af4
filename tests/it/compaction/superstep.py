"""Grades what superstep's agent keeps over five compactions, with the kit `compaction-conformance-kit` from PyPI.

usage: superstep.py PROBE SHARE

PROBE is the example `compaction_probe`, SHARE the part of the window for the user's messages. Prints a line of JSON for each session:
the part of the facts of each kind that the last request has, and how many values it has that were replaced. Rules, constraints and
goals are pinned, as a user would.
"""

import json
import subprocess
import sys

from compaction_kit.compacted import CompactedContext
from compaction_kit.generated import build_generated_session
from compaction_kit.canaries import seeded_canaries
from compaction_kit.runner import run_conformance
from compaction_kit.session import build_seeded_session

KINDS = {"safety_rule": "rule", "hard_constraint": "rule", "goal_state": "goal"}


class Superstep:
    name = "superstep"

    def __init__(self, probe, share, canaries):
        self.share, self.kinds = share, {canary.id: KINDS.get(canary.type.value) for canary in canaries}
        self.process = subprocess.Popen([probe], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def compact(self, turns, round_num=1, budget_chars=None):
        said = []
        # Later rounds begin with the text of the one before, which the thread has.
        for turn in turns if round_num == 1 else []:
            if turn.role == "user":
                said.append({"text": turn.text, "pin": self.kinds.get(turn.canary_id), "id": turn.canary_id or ""})
        said += [{"text": f"Filler {round_num}.{nth}: the build is green and nothing is decided."} for nth in range(20)]
        self.process.stdin.write(json.dumps({"say": said, "user_messages": self.share}) + "\n")
        self.process.stdin.flush()
        text = json.loads(self.process.stdout.readline())["text"]
        return CompactedContext(text=text, compactor_name=self.name, round_num=round_num)


def graded(name, session, canaries, probe, share):
    superstep = Superstep(probe, share, canaries)
    last = run_conformance(session, superstep, rounds=5, canaries=canaries).rounds[-1]
    superstep.process.stdin.close()
    superstep.process.wait()
    pinned = [canary for canary in canaries if superstep.kinds[canary.id]]
    text = last.context.text.lower()
    stale = sum(token.lower() in text for canary in pinned for token in canary.superseded_tokens)
    print(json.dumps({"session": name, "kept": last.survival_by_type, "stale": stale, "characters": len(text)}))


def main(probe, share):
    graded("seeded", build_seeded_session(), seeded_canaries(), probe, float(share))
    for seed in range(1, 13):
        session, canaries = build_generated_session(seed)
        graded(f"generated {seed}", session, canaries, probe, float(share))


main(*sys.argv[1:])
