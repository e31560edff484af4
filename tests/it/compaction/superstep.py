"""Grades what superstep's agent keeps over five compactions, with the kit `compaction-conformance-kit` from PyPI.

usage: superstep.py PROBE SHARE [--no-pins] [--seeds N]

PROBE is the example `compaction_probe`, SHARE the part of the window for the user's messages. Prints a line of JSON for each session:
the part of the facts of each kind that the request after each compaction has, and after the last one, and how many replaced values that
has. Rules, constraints and goals are pinned, as a user would. The sessions are the kit's own one, and those of the seeds 1 to N.
"""

import argparse
import json
import subprocess

from compaction_kit.compacted import CompactedContext
from compaction_kit.generated import build_generated_session
from compaction_kit.canaries import seeded_canaries
from compaction_kit.runner import run_conformance
from compaction_kit.session import build_seeded_session

KINDS = {"safety_rule": "rule", "hard_constraint": "rule", "goal_state": "goal"}


class Superstep:
    name = "superstep"

    def __init__(self, args, canaries):
        kinds = KINDS if args.pins else {}
        self.share, self.kinds = args.share, {canary.id: kinds.get(canary.type.value) for canary in canaries}
        self.process = subprocess.Popen([args.probe], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

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


def graded(name, session, canaries, args):
    superstep = Superstep(args, canaries)
    rounds = run_conformance(session, superstep, rounds=5, canaries=canaries).rounds
    superstep.process.stdin.close()
    superstep.process.wait()
    rules = [canary for canary in canaries if canary.type.value in KINDS]
    text = rounds[-1].context.text.lower()
    stale = sum(token.lower() in text for canary in rules for token in canary.superseded_tokens)
    curve = [one.survival_by_type for one in rounds]
    graded = {"session": name, "kept": curve[-1], "stale": stale, "characters": len(text), "curve": curve}
    print(json.dumps(graded), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("share", type=float)
    parser.add_argument("--no-pins", dest="pins", action="store_false")
    parser.add_argument("--seeds", type=int, default=12)
    args = parser.parse_args()
    graded("seeded", build_seeded_session(), seeded_canaries(), args)
    for seed in range(1, args.seeds + 1):
        graded(f"generated {seed}", *build_generated_session(seed), args)


main()
