#!/usr/bin/env python3
"""Tests of verdict.py --check and of goals, with experiments made up for them: python3 lab/experiments/test_check.py"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import judge
from plans import digest, plan_of

VERDICT = pathlib.Path(__file__).resolve().with_name("verdict.py")
PLAN = '[[sweep]]\nrate = ["1M", "4M"]\n'
CLAIM = '[[claims]]\nname = "rate"\nvalue = "flows.main.throughput"\npublished = 2\n'
GOAL = 'ratio = [0.8, 1.25]\nsince = "2026-11-28"\nbecause = "a rate"\n'
NOVEMBER_28, NOVEMBER_29 = 1795867200, 1795953600


class Check(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.out, self.folder = pathlib.Path(scratch.name) / "out", pathlib.Path(scratch.name) / "paper" / "one"
        self.folder.mkdir(parents=True)
        (self.folder / "plan.toml").write_text(PLAN)

    def experiment(self, text):
        (self.folder / "verdict.toml").write_text('title = "One"\n' + text)

    def results(self, rates, when):
        _, text, _ = plan_of(self.folder, judge.read(self.folder), "full")
        results = self.out / "full-0" / f"paper-one-{digest(text)}" / "results.jsonl"
        results.parent.mkdir(parents=True)
        results.write_text("".join(json.dumps({"cell": {"rate": rate}, "flows": [{"group": "main", "throughput": 2}]}) + "\n" for rate in rates))
        os.utime(results, (when, when))

    def check(self):
        ended = subprocess.run([sys.executable, VERDICT, "--check", "--out", self.out, self.folder], stdout=subprocess.PIPE, text=True)
        return ended.returncode, ended.stdout

    def test_a_published_number_without_a_criterion_is_a_fault(self):
        self.experiment(CLAIM)
        code, said = self.check()
        self.assertEqual(code, 1)
        self.assertIn("paper/one/verdict.toml: 'rate' has 2 published and no criterion", said)

    def test_a_published_quantity_and_a_row_of_a_table_count_as_well(self):
        (self.folder / "published.csv").write_text("quantity,value\nrate,2\nshape,flat\n")
        self.experiment(CLAIM.replace("2\n", '"rate"\n') + CLAIM.replace('"rate"', '"words"').replace("2\n", '"shape"\n'))
        code, said = self.check()
        self.assertEqual((code, said.count("no criterion")), (1, 1))
        (self.folder / "published.csv").write_text("rate,criterion,mean,ci95\n1,time_s,10,1\n1,loss_pct,,\n9,time_s,10,1\n")
        self.experiment('[table]\nflow = "main"\n[table.labels.rate]\n1 = [{ rate = "1M" }]\n')
        code, said = self.check()
        self.assertEqual((code, said.count("no criterion")), (1, 1))
        self.assertIn("'rate 1, time_s' has 10 published", said)

    def test_a_goal_needs_a_day_and_a_reason(self):
        self.experiment(CLAIM + "ratio = [0.8, 1.25]\n")
        code, said = self.check()
        self.assertEqual(code, 1)
        self.assertIn("'rate' has a goal and no `since`", said)
        self.assertIn("'rate' has a goal and no `because`", said)

    def test_without_results_it_says_what_was_not_checked(self):
        self.experiment(CLAIM + GOAL)
        code, said = self.check()
        self.assertEqual(code, 0)
        self.assertIn("simulator: no results", said)

    def test_results_of_the_goal_s_day_or_later_will_do(self):
        self.experiment(CLAIM + GOAL)
        self.results(["1M", "4M"], NOVEMBER_28)
        self.assertEqual(self.check()[0], 0)

    def test_a_goal_newer_than_its_result_is_a_fault(self):
        self.experiment(CLAIM + GOAL.replace("28", "29"))
        self.results(["1M", "4M"], NOVEMBER_28)
        code, said = self.check()
        self.assertEqual(code, 1)
        self.assertIn("'rate' has a goal of 2026-11-29, and results of 2026-11-28", said)

    def test_a_row_without_a_result_is_a_fault(self):
        self.experiment(CLAIM + GOAL)
        self.results(["1M"], NOVEMBER_29)
        code, said = self.check()
        self.assertEqual(code, 1)
        self.assertIn("no result of 'rate, rate 4M'", said)
        self.assertNotIn("rate 1M'", said)

    def test_results_of_another_plan_are_none(self):
        self.experiment(CLAIM + GOAL)
        self.results(["1M", "4M"], NOVEMBER_29)
        (self.folder / "plan.toml").write_text(PLAN + "# Changed.\n")
        self.assertIn("simulator: no results", self.check()[1])


class Goals(unittest.TestCase):
    CELLS = [({"rate": "1M"}, [{"cell": {}, "flows": [{"group": "main", "throughput": 3, "criteria": {"dup": 0.01}}]}])]

    def rows(self, claim):
        wanted = {"since": "2026-11-22", "claims": [{"name": "rate", "value": "flows.main.throughput", "published": 2, **claim}]}
        return [row for one in judge.instances(pathlib.Path("/nowhere"), wanted) for row in judge.claim_rows(one, self.CELLS)]

    def test_a_goal_that_was_replaced_keeps_a_row_of_its_own(self):
        now, before = self.rows({"holds": [2.5, 3.5], "since": "2026-11-28", "was": {"holds": [0, 1], "since": "2026-11-24"}})
        self.assertEqual((now["verdict"], now["since"]), ("met", "2026-11-28"))
        self.assertEqual((before["verdict"], before["since"]), ("missed", "2026-11-24"))
        self.assertTrue(before["row"].startswith("rate, goal of 2026-11-24"))

    def test_a_one_sided_goal_says_so(self):
        self.assertEqual(self.rows({"ratio": [0, 1], "better": "low"})[0]["criterion"], "at least as good: mean at most 2")
        self.assertEqual(self.rows({"ratio": [1, 9], "better": "high"})[0]["criterion"], "at least as good: mean at least 2")

    def test_a_published_row_is_judged_by_the_wider_of_factor_and_interval(self):
        goal = {"ratio": [0.8, 1.25], "interval": True}
        verdict = lambda goal, mean, half: judge.table_verdict(goal, judge.Estimate([11.0]), 1, {"mean": mean, "ci95": half})
        self.assertEqual(verdict(goal, "10", "1"), ("ours 8 to 12.5", "met"))
        self.assertEqual(verdict(goal, "10", "5"), ("ours 5 to 15", "met"))
        self.assertEqual(verdict({"interval": True, "better": "low"}, "10", "0.5"), ("at least as good: ours at most 10.5", "missed"))
        self.assertEqual(verdict({"interval": True, "better": "low"}, "0.0", "0.0"), ("at least as good: ours at most 0", "missed"))


if __name__ == "__main__":
    unittest.main()
