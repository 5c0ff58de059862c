"""All tests: python3 -m unittest -v test_bench.py"""

import ast
import contextlib
import copy
import csv
import dataclasses
import errno
import fnmatch
import hashlib
import html.parser
import io
import itertools
import json
import math
import os
import py_compile
import random
import re
import shlex
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import bench
import harness
import model_triage
import report
import triage_task
from harness import Answer, CaseError, Rejection, RunError, SystemDown
from model_triage import ModelTriage

HERE = Path(__file__).resolve().parent
CASE_FILE = HERE / "cases.json"
GOOD = {"category": "billing", "needs_human": False}
# How a folder is refused that is opened as a file; what stands where Windows has no counterpart.
IS_A_FOLDER = os.strerror(errno.EACCES if os.name == "nt" else errno.EISDIR)
posix_shell = unittest.skipIf(os.name == "nt", "a command of the shell sh, with programs that Windows has not")
posix_signals = unittest.skipIf(os.name == "nt", "Windows sends a process no such signals")
replaceable = unittest.skipIf(os.name == "nt", "Windows removes, moves and replaces no open file")


def can_link() -> bool:
    """Whether this user may make links, which Windows reserves."""
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(OSError):
        os.symlink(folder, os.path.join(folder, "link"))
        return True
    return False


with_links = unittest.skipUnless(can_link(), "this user may make no links")


def setUpModule():
    """Compile once what the processes of these tests would compile each, also where Python was told to keep nothing."""
    for module in (harness, model_triage, triage_task, bench, report):
        with contextlib.suppress(OSError):
            py_compile.compile(module.__file__)


def case(case_id="one", **changes):
    """A case that expects GOOD."""
    made = {"id": case_id, "class": "billing", "split": "development", "input": f"text of {case_id}", "expect": dict(GOOD)}
    made.update(changes)
    return {key: value for key, value in made.items() if value is not KeyError}


def case_set(*cases):
    """A case set of these cases, or of cases with these ids."""
    made = [entry if isinstance(entry, dict) else case(entry) for entry in cases]
    document = {"name": "small", "cases": made}
    return {"name": "small", "sha256": harness.sha256(harness.canonical(document)), "cases": made}


class Scripted:
    """A system whose answers come from a function (case, trial) -> output, Answer or exception."""
    name, version, mode, model, prompt, tools = "scripted", "1", "live", "m", "", []

    def __init__(self, answer=lambda case, trial: dict(GOOD), **attributes):
        self.answer, self.seen = answer, []
        self.__dict__.update(attributes)

    def seed_for(self, trial):
        return 1000 + trial

    def respond(self, case, trial):
        self.seen.append((case["id"], trial))
        result = self.answer(case, trial)
        if isinstance(result, BaseException):
            raise result
        return result if isinstance(result, Answer) else Answer(result, {"seed": 1000 + trial})


@contextlib.contextmanager
def skipping_time():
    """time.monotonic with a function inside the block that lets so many seconds pass at once."""
    now, skipped = time.monotonic, []
    with mock.patch("time.monotonic", lambda: now() + sum(skipped)):
        yield skipped.append


def steps(*seconds):
    """A clock that says these times one after another, and then the last one for ever."""
    times = itertools.chain(seconds, itertools.repeat(seconds[-1]))
    return lambda: next(times)


class InFolder(unittest.TestCase):
    """Tests with a folder of their own."""

    def setUp(self):
        # Its real name: of macOS it has a link before it, of Windows it may be a short one, which no open file leaves.
        self.folder = Path(os.path.realpath(self.enterContext(tempfile.TemporaryDirectory(ignore_cleanup_errors=os.name == "nt"))))
        self.log = self.folder / "log.jsonl"

    def write(self, name, text):
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def run_small(self, system=None, cases=("one", "two"), trials=3, **options):
        return bench.run_bench(system or Scripted(), case_set(*cases), ["development"], trials, self.log, **options)

    def rows(self):
        return bench.read_log(self.log)[1]

    def keys(self):
        return [(row["case_id"], row["trial"]) for row in self.rows()]

    def in_folder(self, module, *words):
        """(exit status, stdout, stderr) of a script's main(), called in this folder."""
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            return called(module, *words)
        finally:
            os.chdir(before)

    def assert_refused(self, text, function, *arguments, **options):
        """A RunError whose message holds the text."""
        with self.assertRaises(RunError) as caught:
            function(*arguments, **options)
        self.assertIn(text, str(caught.exception))


def started(name, *words, **env):
    """How subprocess is to start one of the scripts: as python3 NAME does, but compiled already, on a bare interpreter (-S)."""
    return {"args": [sys.executable, "-S", "-P", "-m", Path(name).stem, *map(str, words)],
            "env": {**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(HERE), **env}}


def script(name, *words, env=None, **options):
    """A finished run of one of the scripts as a real process."""
    return subprocess.run(**started(name, *words, **(env or {})), capture_output=True, text=True, encoding="utf-8", timeout=60,
                          stdin=subprocess.DEVNULL, **options)


def called(module, *words):
    """(exit status, stdout, stderr) of a script's main() in this process, for what a process of its own adds nothing to."""
    out, err = io.StringIO(), io.StringIO()
    numbers = list(bench.ENDING)
    handlers = [signal.getsignal(number) for number in numbers]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), mock.patch.object(sys, "argv", [module.__file__]):
        try:
            status = module.main([str(word) for word in words])
        except SystemExit as end:
            status = end.code
        finally:
            for number, handler in zip(numbers, handlers):
                signal.signal(number, handler)
    return status, out.getvalue(), err.getvalue()


# The task and its cases

class TheTask(unittest.TestCase):
    def checked(self, output, **changes):
        response = {"output": output, "metadata": {}, "latency_s": 0.1}
        return harness.grade(triage_task, case(**changes), response)

    def test_a_matching_output_passes(self):
        self.assertEqual(self.checked(dict(GOOD)), ("pass", None, None))

    def test_fields_are_checked_before_all_else(self):
        for output, reason in (
                ("billing", 'the output is "billing", not an object with category and needs_human'),
                ({"category": "billing"}, "needs_human is missing"),
                ({**GOOD, "why": 1}, '"why" is not a field of the output'),
                ({"category": "Billing", "needs_human": 0},
                 'category is "Billing", not one of billing, delivery, account, other; needs_human is 0, not true or false'),
                ({"category": ["billing"], "needs_human": True}, "category is ['billing'], not one of billing, delivery, account, other")):
            with self.subTest(output=output):
                self.assertEqual(self.checked(output), ("fail", "output-fields", reason))

    def test_a_failure_criterion_wins_over_the_outcome(self):
        criteria = [{"field": "needs_human", "equals": False, "why": "a person has to look"}]
        self.assertEqual(self.checked(dict(GOOD), expect={"category": "account"}, failure_criteria=criteria),
                         ("fail", "failure-criteria", "needs_human is false: a person has to look"))

    def test_the_outcome_names_each_field_that_differs(self):
        self.assertEqual(self.checked({"category": "other", "needs_human": True}),
                         ("fail", "triage-outcome", 'category is "other", expected "billing"; needs_human is true, expected false'))

    def test_one_expected_field_leaves_the_other_free(self):
        self.assertEqual(self.checked({"category": "billing", "needs_human": True}, expect={"category": "billing"})[0], "pass")

    def test_refusals_are_judged_by_the_harness(self):
        refuse = case(expect=KeyError, expect_rejection="message is blank")
        rejected = {"error": {"types": ["Rejection", "ValueError"], "message": "message is blank"}, "metadata": {}, "latency_s": 0}
        other = {"error": {"types": ["Rejection", "ValueError"], "message": "no"}, "metadata": {}, "latency_s": 0}
        for judged, response, verdict in (
                (refuse, rejected, ("pass", None, None)),
                (refuse, other, ("fail", "rejection", 'refused with "no", expected "message is blank"')),
                (refuse, {"output": GOOD, "latency_s": 0},
                 ("fail", "rejection", 'answered an input that it must refuse with "message is blank"')),
                (case(), other, ("fail", "rejection", "refused an input that it must answer: no"))):
            with self.subTest(verdict=verdict):
                self.assertEqual(harness.grade(triage_task, judged, response), verdict)

    def test_a_json_error_is_no_refusal(self):
        self.assertEqual(harness.error_types(json.JSONDecodeError("x", "y", 0)), ["JSONDecodeError", "ValueError"])
        response = {"error": {"types": ["JSONDecodeError", "ValueError"], "message": "x: y"}, "latency_s": 0}
        self.assertEqual(harness.grade(triage_task, case(), response), ("incomplete", None, "JSONDecodeError: x: y"))


class TheCases(InFolder):
    def load(self, document):
        text = document if isinstance(document, (str, bytes)) else json.dumps(document)
        return harness.load_cases(self.write("cases.json", text), triage_task)

    def problems(self, document):
        with self.assertRaises(CaseError) as caught:
            self.load(document)
        return str(caught.exception).replace(f"{self.folder}{os.sep}", "").split("\n")

    def test_the_shipped_cases_are_the_sixteen_of_the_benchmark(self):
        loaded = harness.load_cases(CASE_FILE, triage_task)
        development = [(entry["id"], entry["class"]) for entry in loaded["cases"] if entry["split"] == "development"]
        self.assertEqual(development, [
            ("charged-twice", "billing"), ("stuck-tracking", "delivery"), ("password-changed", "account security"),
            ("product-advice", "out of scope"), ("refund-missing", "billing"),
            ("charged-after-closing", "billing, ambiguous wording"), ("blank-message", "empty input"),
            ("missing-body", "missing input"), ("late-order", "delivery")])
        self.assertEqual(len(loaded["cases"]), 16)

    def test_all_problems_of_a_file_are_listed_at_once(self):
        self.assertEqual(self.problems({"name": "", "cases": [
            case("a", split="train"), case("A "), {"id": "", "class": "x", "split": "development", "input": 3},
            case("b", expect={"colour": 1}), case("c", expect={}), case("d", expect_rejection="no"), "text",
            case("e", expect={"needs_human": "no"}, failure_criteria=[{"field": "category"}]),
            case("f", input=KeyError, failure_critera=[])]}), [
                "cases.json: name is empty or not text",
                'cases.json: case a: split is "train", not one of development, held-out',
                'cases.json: cases[1]: the id "A " is that of cases[0] but for case or space',
                "cases.json: cases[2]: id is empty or not text",
                "cases.json: cases[2]: input is neither text nor null",
                "cases.json: cases[2]: give either expect or expect_rejection, it has neither",
                'cases.json: case b: expect names "colour": the task knows category and needs_human',
                "cases.json: case c: nothing to check: expect names no field",
                "cases.json: case d: give either expect or expect_rejection, not both",
                'cases.json: cases[6]: it is not an object {"id": …, "input": …, "expect": …}',
                'cases.json: case e: expect: needs_human is "no", not true or false',
                "cases.json: case e: failure_criteria[0] is not an object with field, equals and why",
                "cases.json: case f: input is not there",
                'cases.json: case f: unknown key "failure_critera"; did you mean "failure_criteria"?'])

    def test_a_file_of_another_shape_is_refused(self):
        for document, problem in (
                ("{", 'cases.json: not JSON: line 1, column 2: it ends too early: a closing }, ] or " is missing, or the file is cut: {'),
                (b"\xff", "cases.json: not UTF-8 text: byte 0 is 0xff"),
                ("[1]", 'cases.json: not of the shape {"name": …, "cases": […]}'),
                ({"name": "x", "cases": []}, "cases.json: there are no cases"),
                ('{"name": "x", "name": "y", "cases": []}', "cases.json: not JSON: line 1, column 15: the key 'name' stands twice in one object: "
                                                           '{"name": "x", "name": "y", "cases": []}'),
                ('{"name": "x", "cases": NaN}', 'cases.json: not JSON: line 1, column 24: NaN is not JSON: {"name": "x", "cases": NaN}'),
                ("[" * 100_000, "cases.json: not JSON: line 1, column 1: nested too deeply: " + "[" * 80)):
            with self.subTest(problem=problem):
                self.assertEqual(self.problems(document), [problem])

    def test_cases_of_another_task_are_told_in_one_line(self):
        cases = [case(name, expect={"total": 1}) for name in "abc"]
        self.assertEqual(self.problems({"name": "x", "cases": cases}), [
            'cases.json: its cases are not of the task inbox-triage (case c: expect names "total": the task knows category and needs_human): '
            "give their own task as well, as in bench.py TASK.json --cases cases.json, or --task MODULE"])
        self.assertEqual(len(self.problems({"name": "x", "cases": [*cases, case("d")]})), 3)

    def test_the_hash_is_of_the_content_not_of_the_layout(self):
        document = {"name": "x", "cases": [case("ü"), case("b")]}
        plain = self.load(document)["sha256"]
        laid_out = json.dumps(document, indent=4, ensure_ascii=False).replace("\n", "\r\n").encode("utf-8-sig")
        self.assertEqual(self.load(laid_out)["sha256"], plain)
        document["cases"][1]["input"] += "."
        self.assertNotEqual(self.load(document)["sha256"], plain)

    def test_a_criterion_that_fails_what_is_expected_is_a_fault(self):
        criteria = [{"field": "needs_human", "equals": False, "why": " "}]
        self.assertEqual(self.problems({"name": "x", "cases": [case(failure_criteria=criteria)]}), [
            "cases.json: case one: failure_criteria[0] fails the very needs_human that expect asks for",
            "cases.json: case one: failure_criteria[0] has no reason in why"])


# The harness

class PlansAndNames(InFolder):
    def test_a_plan_is_the_cases_of_its_splits_in_file_order(self):
        cases = case_set("b", case("h", split="held-out"), "a")
        self.assertEqual([entry["id"] for entry in harness.plan(cases, ["development"], 1)], ["b", "a"])
        self.assertEqual([entry["id"] for entry in harness.plan(cases, ["held-out"], 1, include_held_out=True)], ["h"])

    def test_plans_that_cannot_be_run_are_refused(self):
        cases = case_set("a")
        for splits, trials, text in ((["developement"], 1, 'did you mean "development"?'), (["held-out"], 1, "no benchmark run"),
                                     (["development"], 0, "whole number from 1"), (["development"], True, "whole number"),
                                     (["development"], 10 ** 9, "from 1 to 100000"),
                                     ([], 1, "no case"), (["development"] * 2, 1, "twice")):
            with self.subTest(text=text):
                self.assert_refused(text, harness.plan, cases, splits, trials)

    def test_a_task_that_is_none_or_fails_is_refused(self):
        good = "NAME = 'x'\nCHECKS = ()\ndef case_problems(case): return []\n"
        for number, (source, text) in enumerate((("import sys\nsys.exit(0)\n", "cannot be imported: SystemExit"), (good + "NAME = {1}\n", "NAME is a text"),
                                                 (good + "CHECKS = [5]\n", "CHECKS are pairs"))):
            self.write(f"odd_task{number}.py", source)
            with contextlib.chdir(self.folder), mock.patch.object(sys, "path", list(sys.path)):
                self.assert_refused(text, harness.load_task, f"odd_task{number}")
        failing = SimpleNamespace(NAME="x", case_problems=lambda case: 1 / 0)
        self.assert_refused('case_problems of x raised ZeroDivisionError on case "one"', harness.one_case_problems, case(), failing)

    def test_a_misspelt_task_or_system_gets_the_nearest_name(self):
        for function, name, text in (
                (harness.load_task, "triage_tsak", 'did you mean "triage_task"?'),
                (harness.load_task, "tasks/triage.py", "not a module's name"),
                (harness.load_task, "json", "no NAME, CHECKS, case_problems"),
                (lambda spec: harness.load_system(spec, case_set("a")), "model_triage", "MODULE:NAME"),
                (lambda spec: harness.load_system(spec, case_set("a")), "model_triage:bayess", 'did you mean "bayes"?'),
                (lambda spec: harness.load_system(spec, case_set("a")), "model_triag:bayes", 'did you mean "model_triage"?')):
            with self.subTest(name=name):
                self.assert_refused(text, function, name)

    def test_modules_of_the_current_folder_are_found(self):
        self.write("found_task.py", "NAME = 'found'\nCHECKS = ()\ndef case_problems(case): return []\n")
        self.write("broken_task.py", "1 / 0\n")
        self.write("found_system.py", "class Made:\n    name = version = mode = model = prompt = tools = 'x'\n"
                                      "    def __init__(self, case_set): self.name = case_set['name']\n"
                                      "    def respond(self, case, trial): pass\n")
        with contextlib.chdir(self.folder), mock.patch.object(sys, "path", list(sys.path)):
            self.assertEqual(harness.load_task("found_task").NAME, "found")
            self.assertEqual(harness.load_system("found_system:Made", case_set("a")).name, "small")
            self.assert_refused("cannot be imported: ZeroDivisionError", harness.load_task, "broken_task")

    def test_a_system_without_an_identity_is_refused(self):
        self.write("nameless.py", "class S:\n    def respond(self, case, trial): pass\ns = S()\n")
        with contextlib.chdir(self.folder), mock.patch.object(sys, "path", list(sys.path)):
            self.assert_refused("has no name, version, mode", harness.load_system, "nameless:s", case_set("a"))


RECEIPT_TASK = {
    "name": "receipts", "prompt": "Read {input}", "compare": {"shop": "text", "total": {"within": 0.005}},
    "schema": {"type": "object", "required": ["shop"], "properties": {
        "shop": {"type": "string"}, "total": {"type": ["number", "null"]}, "kind": {"enum": ["food", "fuel"]}, "ok": {"type": "boolean"},
        "date": {"type": "string"}, "items": {"type": "array", "items": {"type": "string"}}, "count": {"type": "integer"}}},
    "cases": [{"id": "one", "input": "x", "expect": {"total": 1.8}}]}
QUESTION = {"name": "question", "prompt": "Answer: {input}", "cases": [{"id": "one", "input": "x", "expect": "yes"}]}


class TasksAsData(InFolder):
    def load(self, task, case_file=None, **changes):
        """(task, case set) of a task file with these changes; a key that is changed to KeyError is left out."""
        document = {key: value for key, value in {**task, **changes}.items() if value is not KeyError}
        return harness.load_plan(str(self.write("task.json", json.dumps(document))), case_file)

    def faults(self, task, case_file=None, **changes):
        """What a task file with these changes is refused for, without the file's name."""
        with self.assertRaises(CaseError) as caught:
            self.load(task, case_file, **changes)
        return [line.partition("task.json: ")[2] or line for line in str(caught.exception).split("\n")]

    def assert_faults(self, table, task, change):
        """Each row of the table (value, fault, …): exactly these faults are told of the task that change(value) makes."""
        for value, *faults in table:
            with self.subTest(value=value):
                self.assertEqual(self.faults(task, **change(value)), faults)

    def test_the_keys_of_a_task(self):
        self.assert_faults((
            ({"name": KeyError}, 'name is empty, not there or no text: give one such as "receipts", for the log and the report'),
            ({"name": " "}, 'name is empty, not there or no text: give one such as "receipts", for the log and the report'),
            ({"prompt": KeyError}, "it has no prompt: it says what is asked, with {input} where a case's input goes"),
            ({"prompt": 3}, "prompt is 3, not a text"),
            ({"prompt": " "}, "prompt is empty: write something, or leave it out"),
            ({"prompt_file": "p.txt"}, "it has prompt and prompt_file: give one of them"),
            ({"prompt": KeyError, "prompt_file": 3}, "prompt_file is 3, not a text"),
            ({"prompt": KeyError, "prompt_file": "p.txt"}, f"prompt_file: {self.folder / 'p.txt'}: {os.strerror(errno.ENOENT)}"),
            ({"prompt": KeyError, "messages": []}, "messages is empty: write something, or leave it out"),
            ({"prompt": KeyError, "messages": "x"}, 'messages is "x", not a list, such as [{"role": "user", "content": "{input}"}]'),
            ({"prompt": KeyError, "messages": [{"role": "boss", "content": "{input}"}]},
             'messages[0].role is "boss", not one of "system", "user", "assistant", such as [{"role": "user", "content": "{input}"}]'),
            ({"prompt": KeyError, "messages": [{"role": "user", "content": "{input}"}], "system_prompt": "x"},
             "system_prompt cannot go with messages: put it first among them, with the role system"),
            ({"system_prompt": 3}, "system_prompt is 3, not a text"),
            ({"options": [3]}, 'options is [3], not an object, such as {"temperature": 0.2}'),
            ({"think": 3}, 'think is 3, not a text or true or false, such as "off"'),
            ({"promt": "x"}, 'unknown key "promt"; did you mean "prompt" or "prompt_file"?'),
            ({"zzz": "x"}, "unknown key \"zzz\"; a task has name, prompt, prompt_file, system_prompt, messages, schema, options, extract, "
                           "compare, think, cases, test"),
            ({"cases": KeyError}, 'it has no cases: write them under "cases", or give a file with --cases'),
            ({"cases": 3}, 'not of the shape {"name": …, "cases": […]}'),
            ({"cases": []}, "there are no cases")), RECEIPT_TASK, dict)

    def test_schema_extract_and_compare(self):
        kinds, ways = "object, array, string, number, integer, boolean, null", '"exact", "text", "set", {"within": N}, {"within_percent": N}'
        self.assert_faults((
            (3, 'schema is 3, not an object, such as {"type": "number"}'),
            ({"type": "objekt"}, f'schema: type is "objekt", not one of {kinds}; did you mean "object"?'),
            ({"type": []}, f"schema: type is [], not one of {kinds}"),
            ({"properties": {"a": {"type": "strng"}}, "required": ["b"]}, 'schema: required names "b", which properties has not',
             f'schema: a: type is "strng", not one of {kinds}; did you mean "string"?'),
            ({"properties": 3, "required": [1]}, "schema: properties is 3, not an object", "schema: required[0] is 1, not a text"),
            ({"type": "array", "items": {"items": 3}}, "schema: items: items is 3, not an object")), RECEIPT_TASK,
            lambda schema: {"schema": schema, "compare": KeyError})
        self.assertEqual(self.faults(RECEIPT_TASK, extract="(x)"), ["extract is for text replies, and this task has a schema: leave one of them out"])
        self.assert_faults((
            ("x", 'extract: "x" has 0 groups: put ( ) around what is to be compared, and (?: ) elsewhere'),
            ("(x)(y)", 'extract: "(x)(y)" has 2 groups: put ( ) around what is to be compared, and (?: ) elsewhere'),
            ("(x", 'extract: "(x" is no regular expression: missing ), unterminated subpattern at position 0'),
            (3, "extract: 3 is not a text with a regular expression")), QUESTION, lambda extract: {"extract": extract})
        self.assert_faults((
            ("text", 'compare: "text" is not an object such as {"total": {"within": 0.005}}'),
            ({"totl": "text"}, 'compare: the schema has no field "totl"; did you mean "total"?'),
            ({"total": "txt"}, f'compare: "txt" is none of {ways}; did you mean "text"?'),
            ({"total": {"within": -1}}, f'compare: {{"within": -1}} is none of {ways}'),
            ({"total": "within"}, f'compare: "within" is none of {ways}'),
            ({"total": {"exact": 1}}, f'compare: {{"exact": 1}} is none of {ways}'),
            ({"total": {}}, f"compare: {{}} is none of {ways}"),
            ({"total": {"withn": 1}}, f'compare: {{"withn": 1}} is none of {ways}; did you mean "within"?'),
            ({"total": "set"}, 'compare: "set" is about a list, and total is a number or null'),
            ({"shop": {"within": 1}}, 'compare: {"within": 1} is about a number, and shop is a text')), RECEIPT_TASK,
            lambda compare: {"compare": compare})
        self.assert_faults(((3, f"compare: 3 is none of {ways}"),
                            ("set", 'compare: "set" is about a list, and the reply is a text or a number')), QUESTION,
                           lambda compare: {"compare": compare})

    def test_a_schema_that_is_true_or_false_allows_all_or_nothing(self):
        schema = {"type": "object", "properties": {"a": True, "b": False}}
        case = {"id": "x", "input": "y", "expect": {"a": 1}}
        task, cases = self.load(RECEIPT_TASK, schema=schema, compare={"a": "text"}, cases=[case])
        self.assertEqual(harness.grade(task, cases["cases"][0], {"output": {"a": 1}})[0], "pass")
        self.assertEqual(harness.grade(task, cases["cases"][0], {"output": {"a": 1, "b": 2}}), ("fail", "output-fields", "b may not be there"))

    def test_the_id_of_a_case_that_is_no_text_is_told(self):
        for case_id in ([], {}, 3):
            self.assertEqual(self.faults(RECEIPT_TASK, cases=[{"id": case_id, "input": "x", "expect": {"total": 1}}]),
                             ["cases[0]: id is empty or not text"])

    def test_a_keyword_that_is_not_checked_and_a_null_that_cannot_come_are_told(self):
        task, _ = self.load(RECEIPT_TASK, schema={"type": "object", "title": "A receipt", "oneOf": [], "properties": {
            "total": {"type": "number", "minimum": 0}, "shop": {"type": "string", "minimum": 1}}},
            cases=[{"id": "torn", "input": "x", "expect": {"total": None}}])
        self.assertEqual(task.warnings, [
            "no check looks at what the schema says with minimum and oneOf",
            "case torn: expect: total is null, and the schema says a number: no reply that keeps to it can pass; "
            'a type such as ["number", "null"] allows both'])

    def test_expectations_that_no_reply_could_meet(self):
        checks = f"the checks are {', '.join(harness.CHECKS)}"
        self.assert_faults([(expect, *(f"case one: {fault}" for fault in faults)) for expect, *faults in (
            ("yes", 'expect is "yes", not an object of fields such as {"total": 1.8}'),
            ({}, "nothing to check: expect names no field"),
            ({"totl": 1, "shop": 3}, 'expect: the schema has no field "totl"; did you mean "total"?', "expect: shop is 3, not a text: no reply can be that"),
            ({"total": "x"}, 'expect: total is "x", not a number or null: no reply can be that'),
            ({"total": {"equals": "x"}}, 'expect: total is "x", not a number or null: no reply can be that'),
            ({"ok": "true"}, 'expect: ok is "true", not true or false: no reply can be that'),
            ({"count": 1.5}, "expect: count is 1.5, not a whole number: no reply can be that"),
            ({"kind": "fod"}, 'expect: kind is "fod", not one of "food", "fuel": no reply can be that'),
            ({"kind": {"one_of": ["food", "x"]}}, 'expect: kind is "x", not one of "food", "fuel": no reply can be that'),
            ({"items": ["a", 3]}, "expect: items[1] is 3, not a text: no reply can be that"),
            ({"shop": {"contains": ["a", ""]}}, 'expect: shop: contains: ["a", ""] is not a text or a list of texts'),
            ({"total": {"contains": "x"}}, "expect: total: contains is about a text or a list, and the schema says a number or null"),
            ({"shop": {"matches": "("}}, 'expect: shop: matches: "(" is no regular expression: missing ), unterminated subpattern at position 0'),
            ({"shop": {"any": [{"not_matches": 3}]}}, "expect: shop: not_matches: 3 is not a text with a regular expression"),
            ({"shop": {"at_least": 3}}, "expect: shop: at_least is about a number, and the schema says a text"),
            ({"total": {"at_most": "3"}}, 'expect: total: at_most: "3" is not a number'),
            ({"total": {"at_least": 5, "at_most": 1}}, "expect: total: nothing is at least 5 and at most 1"),
            ({"items": {"length_at_least": 1.5}}, "expect: items: length_at_least: 1.5 is not a count"),
            ({"items": {"length_at_least": 3, "length_at_most": 1}}, "expect: items: nothing is a length of at least 3 and a length of at most 1"),
            ({"shop": {"one_of": "x"}}, 'expect: shop: one_of: "x" is not a list of values'),
            ({"shop": {"all": ["x"]}}, 'expect: shop: all: ["x"] is not a list of checks such as {"contains": "x"}'),
            ({"shop": {"not": "x"}}, 'expect: shop: not: "x" is not a check such as {"contains": "x"}'),
            ({"shop": {"contans": "x"}}, 'expect: shop is {"contans": "x"}, neither a text nor a check; did you mean "contains" or "not_contains"?'),
            ({"shop": {"matches": "x", "foo": 1}}, f'expect: shop is {{"matches": "x", "foo": 1}}, neither a text nor a check; {checks}'))],
            RECEIPT_TASK, lambda expect: {"cases": [{"id": "one", "input": "x", "expect": expect}]})
        self.assert_faults([(expect, f"case one: {fault}") for expect, fault in (
            (True, "expect is true, not a text or a number: no reply can be that"),
            (None, "expect is null, not a text or a number: no reply can be that"),
            (" yes ", 'expect is " yes ": a reply has no white space at its ends, so leave it out'),
            ({"foo": 1}, f'expect is {{"foo": 1}}, neither a text or a number nor a check; {checks}'))],
            QUESTION, lambda expect: {"cases": [{"id": "one", "input": "x", "expect": expect}]})

    def test_failure_criteria(self):
        shape = 'it is not {"field": NAME, "is": CHECK, "why": TEXT}; "equals": V for "is", and no "field" for the whole reply'
        total = {"field": "total", "why": "w"}
        self.assert_faults([(criterion, f"case one: failure_criteria[0]: {fault}") for criterion, fault in (
            (3, shape), (total, shape), ({"field": "total", "equals": 0}, shape), ({**total, "is": {"at_most": 0}, "equals": 1}, shape),
            ({**total, "equals": 0, "wy": "x"}, shape),
            ({**total, "field": "totl", "equals": 0}, 'the schema has no field "totl"; did you mean "total"?'),
            ({**total, "equals": 0, "why": " "}, "it has no reason in why"),
            ({**total, "equals": 1.8}, "it fails the very total that expect asks for"),
            ({**total, "is": {"at_moost": 0}}, 'total is {"at_moost": 0}, neither a number or null nor a check; '
                                               'did you mean "at_most" or "length_at_most" or "at_least"?'),
            ({"is": {"at_most": 0}, "why": "w"}, "the reply: at_most is about a number, and the schema says an object"))],
            RECEIPT_TASK, lambda criterion: {"cases": [{**RECEIPT_TASK["cases"][0], "failure_criteria": [criterion]}]})
        self.assert_faults([(criterion, f"case one: failure_criteria[0]: {fault}") for criterion, fault in (
            ({**total, "equals": "x"}, "the reply has no fields: leave out field"),
            ({"is": {"contains": "yes"}, "why": "w"}, "it fails the very reply that expect asks for"))],
            QUESTION, lambda criterion: {"cases": [{**QUESTION["cases"][0], "failure_criteria": [criterion]}]})

    def test_the_keys_of_a_case(self):
        one = RECEIPT_TASK["cases"][0]
        self.assert_faults((
            ([3], 'cases[0]: it is not an object {"id": …, "input": …, "expect": …}'), ([{**one, "id": ""}], "cases[0]: id is empty or not text"),
            ([{**one, "class": 3}], "case one: class is empty or not text"), ([{**one, "id": [1]}], "cases[0]: id is empty or not text"),
            ([{**one, "split": "dev"}], 'case one: split is "dev", not one of development, held-out'),
            ([{**one, "input": 3}], "case one: input is neither text, an object nor null"),
            ([{"id": "one", "expect": {"total": 1}}], "case one: input is not there"),
            ([{"id": "one", "input": "x"}], "case one: give either expect or expect_rejection, it has neither"),
            ([{**one, "expect_rejection": "x"}], "case one: give either expect or expect_rejection, not both"),
            ([{**one, "expct": 3}], 'case one: unknown key "expct"; did you mean "expect"?'),
            ([one, one], 'cases[1]: the id "one" is that of cases[0]'),
            ([one, {**one, "id": "One "}], 'cases[1]: the id "One " is that of cases[0] but for case or space')), RECEIPT_TASK, lambda cases: {"cases": cases})

    def test_placeholders_and_inputs(self):
        cases = [{"id": name, "input": {field: "x"}, "expect": {"total": 1}} for name, field in (("a", "body"), ("b", "bdy"))]
        self.assert_faults((
            ("Read", "the prompt has no {input}, so all cases would be asked the same: put {input} where a case's input goes"),
            ("{input.a}", "the prompt has {input.a}, and no case's input has that field"),
            ("{input.subject} {input.boddy}", "the prompt has {input.subject}, and no case's input has that field",
             "the prompt has {input.boddy}, and no case's input has that field; did you mean \"body\" or \"bdy\"?"),
            ("{input.body}", 'case b: input has no field "body", for which the prompt has a place')), RECEIPT_TASK,
            lambda prompt: {"prompt": prompt, "cases": cases})
        self.assertEqual(harness.filled('{input.a} {"x": {input}} {} {inputs} {input.b}', {"a": "A {input}", "b": [1, None]}),
                         'A {input} {"x": {"a": "A {input}", "b": [1, null]}} {} {inputs} [1, null]')

    def test_all_faults_of_task_and_cases_are_told_at_once(self):
        told = self.faults(RECEIPT_TASK, self.write("more.json", '{"name": "more", "cases": [{"id": "a", "input": "x", "expect": {"totl": 1}}, {"id": "b"}]}'),
                           promt="x", compare={"shop": "txt"})
        self.assertEqual(told, [
            'compare: "txt" is none of "exact", "text", "set", {"within": N}, {"within_percent": N}; did you mean "text"?',
            'unknown key "promt"; did you mean "prompt" or "prompt_file"?',
            *(f"{self.folder / 'more.json'}: case {fault}" for fault in (
                'a: expect: the schema has no field "totl"; did you mean "total"?', "b: input is not there",
                "b: give either expect or expect_rejection, it has neither"))])

    def test_what_is_asked(self):
        self.write("p.txt", "\ufeffRead\r\n{input}\r\n")
        for changes, messages in (
                ({}, [("user", "Read {input}")]), ({"system_prompt": "Be brief"}, [("system", "Be brief"), ("user", "Read {input}")]),
                ({"prompt": KeyError, "prompt_file": "p.txt"}, [("user", "Read\n{input}")]),
                ({"prompt": KeyError, "messages": [{"role": "user", "content": "{input}"}, {"role": "assistant", "content": "?"}]},
                 [("user", "{input}"), ("assistant", "?")])):
            task, _ = self.load(RECEIPT_TASK, options={"temperature": 0}, think="off", **changes)
            self.assertEqual(task.asked, {"messages": [{"role": role, "content": text} for role, text in messages],
                                          "schema": RECEIPT_TASK["schema"], "options": {"temperature": 0}, "think": "off"})
        other = harness.with_prompt(task.asked, "New {input}", "Short")["messages"]
        self.assertEqual([(one["role"], one["content"]) for one in other], [("system", "Short"), ("user", "New {input}"), ("assistant", "?")])

    def test_what_may_be_left_out_of_a_case(self):
        _, cases = self.load(RECEIPT_TASK)
        self.assertEqual(cases["cases"], [{"class": "receipts", "split": "development", **RECEIPT_TASK["cases"][0]}])

    def test_the_hashes_are_over_what_grades_and_over_the_cases(self):
        def hashes(**changes):
            task, cases = self.load(RECEIPT_TASK, **changes)
            return harness.task_identity(task)["sha256"], cases["sha256"]
        task, cases = hashes()
        self.assertEqual(hashes(prompt="Other {input}", options={"temperature": 0}, name="other", cases=[{
            "expect": {"total": 1.8}, "input": "x", "id": "one", "class": "receipts"}]), (task, cases))
        self.assertNotEqual(hashes(compare={"total": {"within": 1}})[0], task)
        self.assertEqual(hashes(cases=[{"id": "one", "input": "x", "expect": {"total": 2}}])[0], task)
        self.assertNotEqual(hashes(cases=[{"id": "one", "input": "x", "expect": {"total": 2}}])[1], cases)

    def test_a_task_of_a_log_is_judged_like_any_other(self):
        task, _ = self.load(RECEIPT_TASK)
        self.assertEqual(harness.task_identity(harness.DataTask(task.definition)), harness.task_identity(task))
        deep = {}
        for _ in range(harness.MAX_DEPTH + 1):
            deep = {"items": deep}
        for hostile in (None, [], {}, {"name": 3}, {"name": "x", "schema": deep}, {"name": "x", "extract": "("}, {"name": "x", "compare": {"within": "x"}},
                        {"name": "x" * harness.MOST_DEFINITION}, {"name": "x", "schema": {"properties": {"a": 3}}}):
            self.assertRaises(CaseError, harness.DataTask, hostile)


class CaseFilesOfOwnTasks(InFolder):
    def cases(self, name, text, task=RECEIPT_TASK):
        definition = {key: task[key] for key in ("name", "schema", "compare") if key in task}
        return [(case["id"], case["input"], case.get("expect")) for case in harness.load_cases(self.write(name, text), harness.DataTask(definition))["cases"]]

    def test_json_lines(self):
        text = '\ufeff{"input": "x", "expect": {"total": 1}}\r\n\r\n{"id": "b", "input": null, "expect": {"shop": "y"}}\r\n'
        self.assertEqual(self.cases("c.jsonl", text), [("1", "x", {"total": 1}), ("b", None, {"shop": "y"})])

    def test_csv_reads_a_cell_as_the_schema_calls_it(self):
        text = '\ufeffid,input,expect.shop,expect.total,expect.ok\r\na,"1,5 ""x""\nmore",12,1.50,TRUE\r\n,y,"",null,\r\n\r\n'
        self.assertEqual(self.cases("c.csv", text), [("a", '1,5 "x"\nmore', {"shop": "12", "total": 1.5, "ok": True}), ("4", "y", {"total": None})])
        self.assertEqual(self.cases("c.csv", "input;expect\nx;7\ny;yes\n", QUESTION), [("2", "x", "7"), ("3", "y", "yes")])
        self.assertEqual(self.cases("c.csv", "input.a\tinput.b\texpect\nx\ty\tz\n", QUESTION), [("2", {"a": "x", "b": "y"}, "z")])
        self.assertEqual(self.cases("c.csv", 'input,expect\nx,"{""total"": 3}"\n'), [("2", "x", {"total": 3})])
        triage = self.write("c.csv", "id,class,split,input,expect.category,expect.needs_human\nx,billing,development,y,billing,FALSE\n")
        self.assertEqual(harness.load_cases(triage, triage_task)["cases"][0]["expect"], GOOD)

    def test_files_that_cannot_be_read_name_the_line(self):
        for name, text, said in (
                ("c.jsonl", '{"input": "x", "expect": "y"}\n\n{"input": "x",}\n',
                 'not JSON: line 3, column 14: a comma stands before the closing }: leave it out: {"input": "x",}'),
                ("c.csv", "", "no header: the first line names the columns, such as id,input,expect"),
                ("c.csv", "input,expct\nx,y\n", 'line 1: unknown column "expct"; did you mean "expect"?'),
                ("c.csv", "input,A\nx,y\n", f'line 1: unknown column "A"; a case has {", ".join(harness.CASE_KEYS)}, and fields of an object as input.A or expect.A'),
                ("c.csv", "input,input\nx,y\n", 'line 1: the column "input" stands twice'),
                ("c.csv", "input,expect\nx,y,z\n", "line 2: 3 cells where the header has 2: put a text with a comma into quotes"),
                ("c.csv", 'input,expect\nx,y\n"a"b,c\n', "line 3: not CSV: "), ("c.csv", "input,expect\nx,y".encode("utf-16"), "this is UTF-16 text: save it as UTF-8"),
                ("c.csv", b"input,expect\nx,\xe9\n", "not UTF-8 text: byte 15 is 0xe9")):
            with self.subTest(text=text), self.assertRaises(CaseError) as caught:
                self.cases(name, text, QUESTION)
            self.assertIn(f"{self.folder / name}: {said}", str(caught.exception))


class CheckingReplies(unittest.TestCase):
    def reason(self, expect, output, criteria=(), **parts):
        """"pass", or the check that fails with its reason."""
        task = harness.DataTask({"name": "t", **parts})
        verdict, check, reason = harness.grade(task, {"id": "one", "expect": expect, "failure_criteria": criteria}, {"output": output})
        return verdict if verdict == "pass" else f"{check}: {reason}"

    def field(self, expect, value, compare="exact"):
        """What the check of one field whose type is free says of a value, without the words before "expected"."""
        said = self.reason({"f": expect}, {"f": value}, schema={"type": "object"}, compare={"f": compare})
        return said.partition("expected ")[2] or said

    def assert_field(self, table):
        """Each row (expectation, values that pass, values that fail, words of the failure, compare)."""
        for expect, good, bad, words, *compare in table:
            with self.subTest(expect=expect):
                self.assertEqual([self.field(expect, value, *compare) for value in good], ["pass"] * len(good))
                self.assertEqual([self.field(expect, value, *compare) for value in bad], [words] * len(bad))

    def test_literals_are_compared_as_compare_says(self):
        self.assert_field((
            (1, [1, 1.0], [True, "1", None, 1.001, [1]], "1"), (True, [True], [1, "true"], "true"), (None, [None], [0, "", "null"], "null"),
            ("a", ["a"], ["A", "a ", ["a"]], '"a"'), ([1, {"a": 2}], [[1.0, {"a": 2}]], [[{"a": 2}, 1], [1]], '[1, {"a": 2}]'),
            ("Bakery  Klein", ["bakery klein.", " \"Bakery\nKLEIN\"", "Bakery Klein"], ["Bakery-Klein", "Klein", 3], '"Bakery  Klein"', "text"),
            (["A.", "b"], [["a", "B!"]], [["b", "a"]], '["A.", "b"]', "text"),
            ("Straße", ["STRASSE"], ["Strase"], '"Straße"', "text"), ("-a- b?", ["A- B", "_a- b_"], ["-", "", "a- b" + "-" * 10 ** 6 + "b"], '"-a- b?"', "text"),
            (1.8, [1.8, 1.805, 1.795], [1.8051, True, None, "1.8"], "1.8 within 0.005", {"within": 0.005}),
            (0.3, [0.1 + 0.2, 0.3], [0.31], "0.3 within 1e-09", {"within": 1e-9}),
            (200, [202, 198], [202.1, 197.9], "200 within 1 %", {"within_percent": 1}), (-200, [-202], [-203], "-200 within 1 %", {"within_percent": 1}),
            ([1, 2, 2], [[2, 1, 2.0]], [[1, 2], [1, 1, 2], 3], "[1, 2, 2] in any order", "set")))

    def test_checks_in_place_of_a_literal(self):
        self.assert_field((
            ({"equals": {"contains": 1}}, [{"contains": 1.0}], [{"contains": 2}, 1], '{"contains": 1}'),
            ({"one_of": ["a", "B"]}, ["a", "b!"], ["c", None], 'one of "a" or "B"', "text"),
            ({"one_of": [1, 5]}, [1.04, 5], [1.06], "one of 1 or 5", {"within": 0.05}),
            ({"contains": ["x", "Y"]}, ["yx", ["x", "Y"]], ["x", ["x", "y"], 3, None], 'to contain "x" and "Y"'),
            ({"contains": 3}, [[1, 3.0]], ["3", [13]], "to contain 3"),
            ({"not_contains": ["x", "y"]}, ["z", [], "", None], ["aX", ["y"]], 'not to contain "x" or "y"'),
            ({"matches": "^a+$"}, ["aa"], ["ab", 3, None], 'to match "^a+$"'), ({"not_matches": "b"}, ["a", None], ["abc"], 'not to match "b"'),
            ({"at_least": 2}, [2, 2.5], [1.9, "2", True, None], "at least 2"), ({"at_most": 2}, [2, -1], [2.1, False], "at most 2"),
            ({"at_least": 2.5}, [10 ** 400], [-10 ** 400], "at least 2.5"),
            ({"length_at_least": 2}, ["ab", [1, 2]], ["a", [1], 12, None], "a length of at least 2"),
            ({"length_at_most": 1}, ["", [1]], ["ab", 1], "a length of at most 1"),
            ({"all": [{"at_least": 1}, {"not": {"equals": 3}}]}, [2], [3, 0], "at least 1 and not 3"),
            ({"any": [{"at_most": 1}, {"equals": 9}]}, [0, 9], [5], "at most 1 or 9"),
            ({"not": {"contains": "x"}}, ["y", 3], ["x"], 'not to contain "x"')))
        self.assertEqual([self.field({"at_least": 1, "at_most": 5}, value) for value in (3, 0, 6)], ["pass", "at least 1", "at most 5"])

    def test_what_a_case_wants_in_words(self):
        criteria = [{"field": "total", "is": 0, "why": "w"}, {"field": "ok", "equals": False, "why": "w"}, {"is": {"at_most": 2}, "why": "w"}]
        self.assertEqual(harness.wanted({"expect": {"total": 1.8}, "failure_criteria": criteria}, triage_task),
                         "wants total 1.8; fails on total 0; fails on ok false; fails on a reply at most 2")

    def test_a_whole_text_reply(self):
        table = (("yes", " yes\n", "pass"), ("yes", "Yes", 'expectation: the reply is "Yes", expected "yes"'), (1234.5, "1,234.5", "pass"),
                 (18, " 18 ", "pass"), (18, "18 euros", 'expectation: the reply is "18 euros", expected 18'), ({"at_least": 2}, "+2.5e0", "pass"),
                 ({"at_least": 2}, "two", 'expectation: the reply is "two", expected at least 2'), ({"contains": "B"}, "abc", "pass"),
                 ("yes", {"a": 1}, 'output-fields: the reply is {"a": 1}, not a text'))
        self.assertEqual([self.reason(expect, output) for expect, output, _ in table], [said for _, _, said in table])

    def test_the_last_match_of_extract_is_what_is_compared(self):
        table = (("B", "Answer: A. No, Answer: B", "pass"), ("B", "Answer: A", 'expectation: the extract is "A", expected "B"'),
                 ("B", "B", 'output-fields: nothing in the reply matches "Answer: (\\\\w+)?"'),
                 ("B", "Answer: ", 'output-fields: nothing in the reply matches "Answer: (\\\\w+)?"'))
        self.assertEqual([self.reason(expect, output, extract=r"Answer: (\w+)?") for expect, output, _ in table], [said for _, _, said in table])

    def test_the_first_check_that_fails_names_the_failure(self):
        criteria = [{"field": "total", "is": {"at_most": 0}, "why": "a total is positive"}, {"equals": {"shop": "x", "total": 3}, "why": "known"}]
        table = (({"total": 0}, "output-fields: shop is missing"), ({"shop": "x", "total": 0}, "failure-criteria: total is 0: a total is positive"),
                 ({"shop": "x", "total": 3}, 'failure-criteria: the reply is {"shop": "x", "total": 3}: known'),
                 ({"shop": "y", "total": 18}, "expectation: total is 18, expected 1.8 within 0.005"),
                 ({"shop": "y"}, "expectation: total is missing, expected 1.8 within 0.005"), ({"shop": "y", "total": 1.8, "more": 1}, "pass"))
        self.assertEqual([self.reason({"total": 1.8}, output, criteria, schema=RECEIPT_TASK["schema"], compare=RECEIPT_TASK["compare"])
                          for output, _ in table], [said for _, said in table])

    def test_replies_that_are_not_what_the_schema_says(self):
        schema = {"type": "object", "additionalProperties": False, "required": ["a"], "properties": {
            "a": {"type": "integer"}, "b": {"enum": ["x", 1, None]}, "c": {"type": "array", "items": {"type": "object", "properties": {
                "d": {"type": "boolean"}}, "required": ["d"]}}, "e": {"const": 3}, "f": {"type": "object", "additionalProperties": {"type": "string"}}}}
        table = (([], "the reply is [], not an object"), ({}, "a is missing"), ({"a": 1.5}, "a is 1.5, not a whole number"), ({"a": True}, "a is true, not a whole number"),
                 ({"a": 1, "z": 2}, '"z" is not a field of the reply'), ({"a": 1, "b": "y"}, 'b is "y", not one of "x", 1, null'),
                 ({"a": 1, "c": [{"d": True}, {"d": 1}, {}]}, "c[1].d is 1, not true or false; c[2].d is missing"), ({"a": 1, "e": 4}, "e is 4, not 3"),
                 ({"a": 1, "f": {"g": 1}}, "f.g is 1, not a text"))
        self.assertEqual([self.reason({"a": 1}, output, schema=schema) for output, _ in table], [f"output-fields: {said}" for _, said in table])
        self.assertEqual(self.reason({"a": 1}, {"a": 1.0, "b": 1.0, "c": [], "e": 3, "f": {"g": ""}}, schema=schema), "pass")
        for schema in ({"type": ["object", "null"]}, {"properties": {"a": {}}}):
            self.assertEqual(self.reason({"a": 1}, None, schema=schema), "output-fields: the reply is null, not an object")
        self.assertEqual(self.reason({"one_of": [1, 2]}, 2, schema={"type": "integer"}), "pass")
        self.assertEqual(self.reason([1], [1, 2], schema={"type": "array"}), "expectation: the reply is [1, 2], expected [1]")


class SearchingWithADeadline(unittest.TestCase):
    RUNAWAY = r"(a+)+$", "a" * 40 + "b"

    def setUp(self):
        harness.searched.cache_clear()

    def test_tame_patterns_need_no_process(self):
        tame = (("total: (\\d+)", 1000), ("^yes|no$", 10_000), ("(?i)colou?r", 10_000), ("(?:abc)?x", 1000), ("plain", 10 ** 6))
        wild = (("(a+)+$", 2), ("(?x)(a+) *$", 2), (".*.*.*x", 1000), ("(?:a|a)" * 30, 10), ("(a?){40}", 5), ("(?:ab){2}", 5))
        self.assertEqual([harness.is_tame(*question) for question in tame + wild], [True] * len(tame) + [False] * len(wild))
        with mock.patch.object(harness, "searcher", side_effect=AssertionError):
            self.assertEqual(harness.searched("total: (\\d+)", "total: 1, total: 2", True), ["2"])

    def test_a_process_finds_what_the_module_finds(self):
        texts = ("abab \ud800\u2028\n\0é", "", "ab" * 200_000)
        found = [[harness.searched(pattern, text, last) for text in texts] for pattern, last in (("(ab)+", False), ("(?:a(b))+", True), ("(x)*", True))]
        self.assertEqual(found, [[["abab"], None, ["ab" * 200_000]], [["b"], None, ["b"]], [[None], [None], [None]]])

    def test_one_that_runs_away_is_a_fault_of_the_grader(self):
        task = harness.DataTask({"name": "t"})
        pattern, text = self.RUNAWAY
        with mock.patch.object(harness, "SEARCH_S", 0.05):
            verdict = harness.grade(task, {"id": "one", "expect": {"matches": pattern}}, {"output": text})
        self.assertEqual(verdict, ("incomplete", None, 'CheckError: check expectation raised TimeoutError: the regular expression "(a+)+$" '
                                                       "runs away on this reply and was stopped: make it simpler"))
        self.assertIsNone(harness.searcher(os.getpid()).process)
        self.assertEqual(harness.searched("(b)+", "abb"), ["bb"])

    def test_one_that_was_stopped_three_times_is_stopped_sooner(self):
        found, asked = harness.Searcher(), []
        with mock.patch.object(found, "asked", lambda question: asked.append(question) or ""):
            for pattern in "aaaab":
                self.assertRaises(TimeoutError, found.search, pattern, "x", False, 2)
        self.assertEqual([(question[0], question[3]) for question in asked], [("a", 2), ("a", 2), ("a", 2), ("a", 0.2), ("b", 2)])

    def test_a_system_without_timers_stops_it_too(self):
        found = harness.Searcher()
        self.addCleanup(found.end)
        with mock.patch.object(found, "CODE", found.CODE.replace("for line in", "if hasattr(signal, 'setitimer'):\n    del signal.setitimer\nfor line in")):
            self.assertEqual(found.search("(b)+", "abb", False, 60), ["bb"])
            self.assertRaisesRegex(TimeoutError, "runs away on this reply and was stopped", found.search, *self.RUNAWAY, False, 0.05)
            self.assertEqual(found.search("(b)+", "abb", False, 60), ["bb"])

    def test_threads_share_it_and_it_may_be_ended_from_outside(self):
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda number: harness.searched("(x|y)+([0-9])", f"xyx{number}", True), range(8)))
        self.assertEqual(found, [[f"xyx{number}"[2]] for number in range(8)])
        searcher = harness.searcher(os.getpid())
        searcher.process.kill()
        searcher.process.wait()
        self.assertEqual(harness.searched("(b)+", "abb"), ["bb"])

    @unittest.skipUnless(hasattr(os, "fork"), "no fork")
    def test_a_forked_child_has_one_of_its_own(self):
        harness.searched("(c)+", "cc")
        first = harness.searcher(os.getpid()).process
        child = subprocess.run([sys.executable, "-c", "import harness, os, sys\nharness.searched('(c)+', 'cc')\nfirst = harness.searcher(os.getpid()).process\n"
                                "child = os.fork()\nif not child:\n    sys.exit(harness.searched('(d)+', 'dd') != ['dd'])\n"
                                "status = os.waitpid(child, 0)[1]\nprint(status, first.poll())"], cwd=HERE, capture_output=True, text=True, timeout=60)
        self.assertEqual((child.stdout, child.stderr), ("0 None\n", ""))
        self.assertIsNone(first.poll())

    @unittest.skipUnless(hasattr(signal, "SIGKILL"), "POSIX")
    def test_it_ends_with_the_process_that_started_it(self):
        code = ("import harness, os, signal\nharness.searched('(c)+', 'cc')\nprint(harness.searcher(os.getpid()).process.pid, flush=True)\n"
                "os.kill(os.getpid(), signal.SIGKILL)")
        child = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, timeout=60)
        self.assertTrue(ended(int(child.stdout)))


def ended(pid, patience_s=20):
    """Whether a process that is no child of ours is gone, or a zombie that nobody waits for, within the patience."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.01)
    return False


class Contamination(InFolder):
    LONG = "the parcel was left with a neighbour whom I have never met in my life"

    def found(self, *cases, **shown):
        return harness.contamination({"cases": [case(name, **changes) for name, changes in cases]}, **shown)

    def test_runs_of_8_words_shared_with_held_out_cases_the_prompt_and_examples(self):
        planned, asked = ("a", {"input": f"Hello, {self.LONG}."}), {"messages": [
            {"role": "system", "content": "Such as: The PARCEL was left, with a neighbour whom I miss"}, {"role": "user", "content": "{input} {input.x} here"}]}
        held_out = ("b", {"split": "held-out", "input": {"text": ["I said", {"more": f"so {self.LONG}!"}]}})
        run = "the parcel was left with a neighbour whom"
        self.assertEqual(self.found(planned, held_out), [f'case a and held-out case b share "{run}"'])
        self.assertEqual(self.found(planned, asked=asked), [f'case a and the prompt share "{run}"'])
        self.assertEqual(self.found(held_out, asked=asked), [f'held-out case b and the prompt share "{run}"'])
        self.assertEqual(self.found(planned, examples=(("billing", False, (self.LONG,)),)), [f'case a and an example of the system share "{run}"'])
        self.assertEqual(self.found(held_out, ("c", {"split": "held-out", "input": f"But {self.LONG}"})), [])
        self.assertEqual(self.found(planned, ("b", {"split": "held-out", "input": "the parcel was left with a neighbour and more of it"})), [])

    def test_a_short_text_is_compared_whole(self):
        self.assertEqual(self.found(("a", {"input": "Where is it?"}), ("b", {"input": "Who is it?"}), examples=("where is it", "who")),
                         ['case a and an example of the system share "where is it"'])

    def test_inputs_that_stand_twice_or_nearly_so(self):
        self.assertEqual(self.found(("a", {"input": "Two  words!"}), ("b", {"input": "two words"}), ("c", {"input": "TWO WORDS", "expect": {"category": "other"}}),
                                    ("d", {"input": None}), ("e", {"input": " "}), ("f", {"input": None})),
                         ["case a and case b have the same input", "case a and case c have the same input, and expect different things"])
        self.assertEqual(self.found(("a", {"input": self.LONG}), ("b", {"input": self.LONG.replace("never", "not")}), ("c", {"input": self.LONG[:40]})),
                         ["case a and case b have nearly the same input: 93 % of the words"])

    def test_many_cases_are_not_compared_one_with_another(self):
        words = [f"w{number}" for number in range(500)]
        rng, compared = random.Random(1), []
        cases = [(str(number), {"input": " ".join([self.LONG, *rng.choices(words, k=30)]), "split": harness.SPLITS[number % 2]}) for number in range(400)]
        with mock.patch.object(harness.difflib, "SequenceMatcher", side_effect=lambda *question, **options: compared.append(1) or mock.MagicMock(
                quick_ratio=lambda: 0.0)):
            found = self.found(*cases)
        self.assertLess(len(compared), 2001)
        self.assertEqual((len(found), found[-1][:4]), (21, "and "))

    def test_the_command_says_what_it_found(self):
        self.assertEqual(called(harness, "check", "--system", "model_triage:bayes"), (0, "inbox-triage: 16 cases, nothing shared, none alike\n", ""))
        task = {**RECEIPT_TASK, "cases": [{"id": name, "input": "one two", "expect": {"shop": None}} for name in "ab"]}
        path = self.write("task.json", json.dumps(task))
        status, out, err = called(harness, "check", path)
        self.assertEqual((status, out.split("\n")[1:], err), (1, [
            out.split("\n")[1], "case a and case b have the same input", "receipts: 2 cases, 1 found", ""], ""))
        self.assertIn("case a: expect: shop is null", out)
        status, out, err = called(bench, path, "--check")
        self.assertEqual((status, err.split("\n")[2:]), (0, ["warning: case a and case b have the same input", ""]))


class OneCall(unittest.TestCase):
    def attempt(self, result):
        return harness.attempt(Scripted(lambda case, trial: result), case(), 7, steps(0.0, 0.25))

    def test_an_answer_comes_back_with_its_latency(self):
        self.assertEqual(self.attempt(dict(GOOD)), {"output": GOOD, "metadata": {"seed": 1007}, "latency_s": 0.0})

    def test_what_json_cannot_hold_makes_the_trial_incomplete_and_says_why(self):
        cycle = []
        cycle.append(cycle)
        deep = []
        for _ in range(10_000):
            deep = [deep]
        for output, text in ((b"x", "bytes"), ({1, 2}, "set"), (float("nan"), "Out of range"), (1e999, "Out of range"), ((1, 2), "a tuple"),
                             ({1: 2}, "not text"), (cycle, "100 levels"), (deep, "100 levels"), (10 ** 5000, "4300")):
            with self.subTest(text=text):
                response = self.attempt(Answer(output, {"reply": "kept"}))
                self.assertEqual(response["error"]["types"], ["OutputError", "ValueError"])
                self.assertIn(text, response["error"]["message"])
                self.assertEqual(response["metadata"], {"seed": 1007, "reply": "kept"})

    def test_a_hundred_levels_are_still_held(self):
        output = []
        for _ in range(99):
            output = [output]
        self.assertEqual(self.attempt(output)["output"], output)

    def test_an_error_keeps_its_metadata_and_the_seed(self):
        error = TimeoutError("too late")
        error.metadata = {"reply": "half"}
        self.assertEqual(self.attempt(error)["error"], {"types": ["TimeoutError", "OSError"], "message": "too late"})
        self.assertEqual(self.attempt(error)["metadata"], {"seed": 1007, "reply": "half"})
        error.metadata = {"reply": b"bytes"}
        self.assertIn("JSON cannot hold the metadata", self.attempt(error)["metadata"]["metadata_error"])

    def test_no_error_can_claim_to_be_not_run(self):
        self.assertEqual(self.attempt(type("NotRun", (ValueError,), {})("x"))["error"]["types"], ["ValueError"])

    def test_what_is_no_answer_is_incomplete(self):
        system = Scripted()
        system.respond = lambda case, trial: GOOD
        self.assertEqual(harness.attempt(system, case(), 0)["error"]["message"], "respond returned dict, not an Answer")

    def test_whatever_a_system_raises_is_its_trials_result(self):
        class Odd(Exception):
            def __str__(self):
                raise KeyError("x")
        for error, types, message in ((SystemExit(0), ["SystemExit"], "0"), (GeneratorExit(), ["GeneratorExit"], ""), (RecursionError("deep"), ["RecursionError", "RuntimeError"], "deep"),
                                      (Odd(), ["Odd"], "its text raised KeyError"), (type("", (ValueError,), {})("x"), ["ValueError"], "x")):
            self.assertEqual(self.attempt(error)["error"], {"types": types, "message": message})

    def test_a_seed_that_cannot_be_had_is_told(self):
        system = Scripted(lambda case, trial: ValueError("x"), seed_for=lambda trial: 1 / 0)
        self.assertEqual(harness.attempt(system, case(), 0)["metadata"], {"metadata_error": "division by zero"})

    def test_what_a_system_does_to_a_case_reaches_no_other_trial(self):
        kept = case()
        harness.attempt(Scripted(lambda case, trial: case.clear()), kept, 0)
        self.assertEqual(kept, case())

    def test_a_system_that_is_down_is_no_result(self):
        with self.assertRaises(SystemDown):
            self.attempt(SystemDown("gone"))


class Hooks(unittest.TestCase):
    """What a system may have beside respond, called around each trial."""

    def test_confirm_adds_to_the_metadata_of_what_reached_a_model(self):
        def confirm():
            return {"seed": 7, "digest": "d"}
        broken = ValueError("no")
        for result, metadata in ((dict(GOOD), {"seed": 7, "digest": "d"}), (broken, {"seed": 7, "digest": "d"}),
                                 (Rejection("no"), {"seed": 1000}), (Answer(GOOD, {}), {})):
            system = Scripted(lambda case, trial, result=result: result, confirm=confirm)
            self.assertEqual(harness.attempt(system, case("one"), 0)["metadata"], metadata)
        self.assertEqual(harness.attempt(Scripted(confirm=lambda: None), case("one"), 0)["metadata"], {"seed": 1000})

    def test_what_a_hook_raises_or_returns_is_no_result(self):
        for error, kind in ((SystemDown("another model"), SystemDown), (ValueError("bad"), RunError)):
            for name in ("ready", "confirm"):
                with self.assertRaisesRegex(kind, "another model" if kind is SystemDown else f"{name} of scripted raised ValueError: bad"):
                    harness.attempt(Scripted(**{name: mock.Mock(side_effect=error)}), case("one"), 0)
        for told, message in ((7, "confirm of scripted returned int, not a dict"), ({"a": {1}}, "confirm of scripted: ")):
            with self.assertRaisesRegex(RunError, message):
                harness.attempt(Scripted(confirm=lambda told=told: told), case("one"), 0)

    def test_neither_hook_counts_in_the_latency(self):
        times = []
        system = Scripted(lambda case, trial: times.append(1) or dict(GOOD), ready=lambda case: times.append(1), confirm=lambda: times.append(1))
        self.assertEqual(harness.attempt(system, case("one"), 0, clock=lambda: len(times))["latency_s"], 1)
        self.assertEqual(len(times), 3)


class RecordingsAndRunRecords(InFolder):
    cases = case_set("a", case("b", expect=KeyError, expect_rejection="message is blank"))

    def recording(self):
        return harness.record(Scripted(), self.cases, ["development"], 2)

    def test_a_run_record_has_one_graded_row_a_trial(self):
        record = harness.replay(self.recording(), triage_task, self.cases)
        self.assertEqual(list(record["manifest"]), ["harness_version", "task", "case_set", "system", "splits", "trials", "recording_sha256"])
        self.assertEqual(record["manifest"]["system"]["mode"], "replay")
        self.assertEqual([(row["case_id"], row["trial"], row["verdict"]) for row in record["results"]],
                         [("a", 0, "pass"), ("a", 1, "pass"), ("b", 0, "fail"), ("b", 1, "fail")])
        self.assertEqual(list(record["results"][0]), ["case_id", "class", "split", "trial", "verdict", "check", "reason", "output", "metadata"])
        self.assertTrue(record["results"][2]["expects_rejection"])

    def test_the_hash_covers_the_plan_and_every_response(self):
        recording = self.recording()
        for responses in recording["responses"].values():
            for response in responses:
                response["latency_s"] = 0.5
        first = harness.recording_sha256(recording)
        lines = [harness.canonical({key: recording[key] for key in harness.PLAN_KEYS})]
        lines += [harness.canonical([case_id, trial, harness.sha256(harness.canonical(response))])
                  for case_id, responses in recording["responses"].items() for trial, response in enumerate(responses)]
        self.assertEqual(first, harness.sha256("".join(line + "\n" for line in lines)))
        recording["responses"]["a"][1]["latency_s"] = 0.6
        self.assertNotEqual(harness.recording_sha256(recording), first)

    def test_recordings_that_do_not_fit_are_refused(self):
        def changed(**changes):
            return {**self.recording(), **changes}
        short, odd, unknown = self.recording(), self.recording(), self.recording()
        short["responses"]["a"].pop()
        odd["responses"]["a"][1] = {"output": 1, "error": 2}
        unknown["responses"]["x"] = []
        for recording, text in (
                ([], "not a recording"), (changed(harness_version="0"), "harness_version"), (changed(case_set_sha256="0"), "--cases"),
                (changed(system={}), "system is not"), (changed(splits=["all"]), "unknown split"), (changed(trials=0), "trials is 0"),
                (changed(responses=[]), "responses is not"), (short, "case a has not 2 trials"),
                (odd, "case a, trial 1: it has not exactly one of output and error"), (unknown, "case x is not of the plan"),
                (changed(provenance=[]), "provenance is not")):
            with self.subTest(text=text):
                self.assert_refused(text, harness.replay, recording, triage_task, self.cases)

    def replayed(self, check):
        """The run record of a recording graded with one check, named c."""
        task = SimpleNamespace(NAME="x", CHECKS=(("c", check),), __file__=triage_task.__file__)
        return harness.replay(self.recording(), task, self.cases)["results"]

    def test_a_check_that_raises_makes_the_trials_incomplete_that_it_was_to_judge(self):
        self.assertEqual([(row["verdict"], row["check"], row["reason"]) for row in self.replayed(lambda case, output: 1 / 0)[:2]],
                         [("incomplete", None, "CheckError: check c raised ZeroDivisionError: division by zero")] * 2)

    def test_a_check_that_raises_at_one_trial_leaves_the_others_their_verdict(self):
        left = iter([None, 1])
        rows = self.replayed(lambda case, output: next(left) and 1 / 0)
        self.assertEqual([row["verdict"] for row in rows], ["pass", "incomplete", "fail", "fail"])

    def test_what_is_no_reason_and_an_error_without_a_text_are_told(self):
        class Odd(Exception):
            def __str__(self):
                raise KeyError("x")
        for check, text in ((lambda case, output: False, "check c returned False, not a reason or None"), (lambda case, output: "", "check c returned ''"),
                            (mock.Mock(side_effect=Odd()), "check c raised Odd: its text raised KeyError")):
            self.assertIn(f"CheckError: {text}", self.replayed(check)[0]["reason"])

    def test_no_system_can_claim_a_check_error(self):
        response = harness.attempt(Scripted(lambda case, trial: type("CheckError", (ValueError,), {})("x")), case(), 0)
        self.assertEqual(response["error"]["types"], ["ValueError"])

    def test_changed_checks_grade_an_old_run_only_on_purpose(self):
        recording = {**self.recording(), "provenance": {"task": {"name": "inbox-triage", "sha256": "0" * 64}}}
        self.assert_refused("--regrade", harness.replay, recording, triage_task, self.cases)
        self.assertEqual(len(harness.replay(recording, triage_task, self.cases, regrade=True)["results"]), 4)

    def test_the_task_hash_ignores_line_endings(self):
        source = Path(triage_task.__file__).read_bytes()
        other = SimpleNamespace(NAME=triage_task.NAME, __file__=self.write("t.py", source.replace(b"\n", b"\r\n")))
        self.assertEqual(harness.task_identity(other), harness.task_identity(triage_task))

    def test_the_command_writes_the_same_bytes_under_every_hash_seed(self):
        recording = self.folder / "recording.json"
        loaded = harness.load_cases(CASE_FILE, triage_task)
        harness.write(recording, harness.record(Scripted(), loaded, ["development"], 2))
        made = []
        for seed, locale in (("0", "C"), ("1", "C.UTF-8")):
            done = script("harness.py", "run", "--recording", recording, "--out", self.folder / "run.json", cwd=self.folder,
                          env={"PYTHONHASHSEED": seed, "LC_ALL": locale, "TZ": "Asia/Tokyo"})
            self.assertEqual((done.stdout, done.stderr), (f"{self.folder / 'run.json'}: 18 trials graded\n", ""))
            made.append((self.folder / "run.json").read_bytes())
        self.assertEqual(made[0], made[1])
        self.assertTrue(made[0].endswith(b"}\n"))

    def test_the_command_refuses_in_one_line(self):
        for words, text in ((["--recording", self.write("r.json", "[]")], "r.json: not a recording"),
                            (["--recording", self.folder / "none.json"], "none.json: No such file"),
                            (["--recording", self.write("n.json", "NaN")], "n.json: not JSON: line 1, column 1: NaN is not JSON: NaN")):
            done = script("harness.py", "run", *words, "--out", self.folder / "out.json")
            with self.subTest(text=text):
                self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1))
                self.assertTrue(done.stderr.startswith("error: ") and text in done.stderr, done.stderr)
                self.assertFalse((self.folder / "out.json").exists())


class Files(InFolder):
    def test_the_usual_slips_in_json_are_named_with_their_place(self):
        quote, early = "where JSON has double quotes: write \"", 'it ends too early: a closing }, ] or " is missing, or the file is cut'
        for text, said in (
                ('{"a": 1,\n}', '1, column 8: a comma stands before the closing }: leave it out: {"a": 1,'),
                ('{"a": [1, 2, ]}', '1, column 12: a comma stands before the closing ]: leave it out: {"a": [1, 2, ]}'),
                ("{'a': 1}", f"1, column 2: a quotation mark ' {quote}: {{'a': 1}}"), ("[“a”]", f"1, column 2: a quotation mark “ {quote}: [“a”]"),
                ('{"a": 1\n  "b": 2}', '2, column 3: a comma is missing before this: "b": 2}'), ("[1 2]", "1, column 4: a comma is missing before this: [1 2]"),
                ('{"a": 1, // note\n"b": 2}', '1, column 10: a comment, which JSON has not: leave it out: {"a": 1, // note'),
                ("[# x\n1]", "1, column 2: a comment, which JSON has not: leave it out: [# x"), ("[1 /* x */]", "1, column 4: a comment, which JSON has not: leave it out: [1 /* x */]"),
                ("[1, None]", "1, column 5: None is written null in JSON: [1, None]"), ("[True]", "1, column 2: True is written true in JSON: [True]"),
                ("{a: 1}", '1, column 2: a name without quotes: write "a": {a: 1}'), ('{"a" 1}', '1, column 6: a colon is missing before this: {"a" 1}'),
                ('["x\ny"]', '1, column 4: a text with a line break or a tab in it: write \\n or \\t: ["x'), ('["c:\\d"]', '1, column 5: a backslash in a text: write \\\\: ["c:\\d"]'),
                ('{"a": "x', '1, column 7: a text without its closing ": {"a": "x'), ('{"a": [1\n', f'1, column 9: {early}: {{"a": [1'), (" ", "1, column 1: it ends too early: it is empty: "),
                ('{"a": 1}\n{"a": 2}', '2, column 1: it goes on after its end: one value a file, one a line in .jsonl: {"a": 2}'),
                ("[x]", "1, column 2: no value of JSON; a text stands in double quotes: [x]"),
                ('{"NaN": "1e999",\n"b": [-1e999]}', '2, column 7: -1e999 is out of a number\'s range: "b": [-1e999]}'),
                ('{"a": {"b": 1}, "b": "a",\n"\\u0061": 3}', "2, column 1: the key 'a' stands twice in one object: \"\\u0061\": 3}"),
                ('["' + "x" * 300 + '",]', '1, column 304: a comma stands before the closing ]: leave it out: ' + "x" * 39 + '",]')):
            with self.subTest(text=text):
                self.assert_refused(f"{self.folder / 'a.json'}: not JSON: line {said}", harness.read_json, self.write("a.json", text))

    def test_a_file_of_json_is_indented_as_python_does_it(self):
        for value in (None, 1.5, "a\n", [], {}, [[]], [{}], {"a": {}}, {"a": []}, [1, "é\ud800", None], {"b": [1, {"c": {"d": [True, []]}}], "a": (1, (2,))},
                      [[1, 2], 3, {"x": -0.0, "": "}]"}], {"k": {str(k): {"x": k / 7} for k in range(3)}}):
            harness.write(self.folder / "a.json", value)
            self.assertEqual((self.folder / "a.json").read_bytes(), (json.dumps(value, indent=2) + "\n").encode(), value)
        self.assertRaises(ValueError, harness.write, self.folder / "nan.json", {"a": [float("nan")]})
        self.assertEqual(os.listdir(self.folder), ["a.json"])

    def test_a_file_is_written_whole_or_not_at_all(self):
        path = self.folder / "x.json"
        harness.write(path, {"b": 1, "a": "ü\ud800"})
        self.assertEqual(path.read_bytes(), b'{\n  "b": 1,\n  "a": "\\u00fc\\ud800"\n}\n')
        with self.assertRaises(ValueError):
            harness.write(path, float("nan"))
        with mock.patch("os.fsync", side_effect=OSError(errno.ENOSPC, "No space left on device")):
            self.assert_refused("x.json: cannot be written: No space left on device", harness.write, path, 1)
        self.assertEqual(harness.read_json(path), {"b": 1, "a": "ü\ud800"})
        self.assertEqual([entry.name for entry in self.folder.iterdir()], ["x.json"])

    def test_a_log_of_trials_is_replaced_by_no_writer(self):
        log = self.write("runs.jsonl", '{"bench_version": "1"}\n')
        self.assert_refused("this is a log of trials, which nothing replaces", harness.write, log, 1)
        self.assertEqual(log.read_text(), '{"bench_version": "1"}\n')

    @with_links
    def test_a_link_stays_a_link(self):
        (self.folder / "real").write_text("")
        (self.folder / "link").symlink_to("real")
        harness.write(self.folder / "link", 1)
        self.assertEqual((self.folder / "real").read_text(), "1\n")
        self.assertTrue((self.folder / "link").is_symlink())

    def test_control_characters_are_printed_as_escapes(self):
        self.assertEqual(harness.printable("a\x1b[2J\u202eb\u2028\ud800\x9b\n é 😀"), "a\\x1b[2J\\u202eb\\u2028\\ud800\\x9b\\n é 😀")


# The log

class TheLog(InFolder):
    def test_the_header_is_the_plan_and_the_rows_are_in_trial_major_order(self):
        counts = self.run_small(hardware="a desk")
        self.assertEqual(counts, {"planned": 6, "already_logged": 0, "ran": 6, "not_run": 0, "stopped_by_budget": False})
        header, rows = bench.read_log(self.log)
        self.assertEqual(list(header), ["bench_version", "harness_version", "case_set_sha256", "system", "splits", "trials",
                                        "case_inputs", "started_at", "budget_s", "environment", "cases", "case_set", "sync"])
        self.assertEqual(header["environment"]["hardware"], "a desk")
        self.assertEqual(self.keys(), [(case_id, trial) for trial in range(3) for case_id in ("one", "two")])
        self.assertEqual(list(rows[0]), ["case_id", "trial", "started_at", "latency_s", "metadata", "output"])
        self.assertEqual(rows[0]["metadata"], {"seed": 1000, "workers": 1})

    def test_a_finished_log_is_left_as_it_is(self):
        self.run_small()
        before = self.log.read_bytes()
        self.assertEqual(self.run_small()["already_logged"], 6)
        self.assertEqual(self.log.read_bytes(), before)

    def test_a_resumed_run_runs_only_what_is_missing(self):
        self.run_small(budget_s=1.5, clock=steps(0, 0, 1, 1, 1, 1, 1, 1, 2))
        logged = self.keys()
        self.assertTrue(0 < len(logged) < 6)
        system = Scripted()
        self.assertEqual(self.run_small(system)["already_logged"], len(logged))
        self.assertEqual(len(set(self.keys())), 6)
        self.assertEqual(set(system.seen), set(self.keys()) - set(logged))

    def test_another_plan_is_refused_with_both_values_and_nothing_is_sent(self):
        self.run_small()
        before = self.log.read_bytes()
        for options, keys in (
                ({"trials": 4}, "trials is 3 in the log, 4 now"), ({"cases": ("one", "three")}, "case_set_sha256 is "),
                ({"cases": ("one", case("two", input="other"))}, "case_set_sha256 is "),
                ({"system": Scripted(model="n")}, 'system.model is "m" in the log, "n" now'),
                ({"system": Scripted(prompt="p")}, 'system.prompt is "" in the log, "p" now'),
                ({"system": Scripted(options={"long": "x" * 90 + "A"})}, 'system.options is null in the log, {"long": "xxxxx'),
                ({"system": Scripted(options={"temperature": 2})}, 'system.options is null in the log, {"temperature": 2} now')):
            with self.subTest(keys=keys):
                system = options.get("system") or Scripted()
                self.assert_refused(keys, self.run_small, **{"system": system, **options})
                self.assertEqual(system.seen, [])
        with mock.patch.object(harness, "HARNESS_VERSION", "2"):
            self.assert_refused('harness_version is "1" in the log, "2" now', self.run_small)
        self.assertEqual(self.log.read_bytes(), before)

    def test_long_values_that_differ_late_are_shown_where_they_differ(self):
        self.run_small(Scripted(prompt="p" * 80 + "A"))
        self.assert_refused(f'system.prompt is …{"p" * 20}A" in the log, …{"p" * 20}B" now', self.run_small, Scripted(prompt="p" * 80 + "B"))

    def test_a_stopped_log_of_59_of_90_trials_is_59_trials_and_31_not_run(self):
        loaded = harness.load_cases(CASE_FILE, triage_task)
        answers = {case["id"]: {"category": "billing", "needs_human": False, **case.get("expect", {})} for case in loaded["cases"]}
        answers["password-changed"]["needs_human"] = True

        def answer(case, trial):
            if "expect_rejection" in loaded_by_id[case["id"]]:
                return Rejection(loaded_by_id[case["id"]]["expect_rejection"])
            return SystemDown("gone") if (trial, case["id"]) == (6, "charged-after-closing") else answers[case["id"]]
        loaded_by_id = {case["id"]: case for case in loaded["cases"]}
        with self.assertRaises(SystemDown):
            bench.run_bench(Scripted(answer), loaded, ["development"], 10, self.log)
        recording = bench.to_recording(self.log, loaded)
        made = report.system_report(harness.replay(recording, triage_task, loaded))
        self.assertEqual((len(self.rows()), made["not_run"], made["flaky_cases"], made["curve"]), (59, 31, [], None))
        self.assertEqual({10 - case["not_run"] for case in made["per_case"].values()}, {6, 7})
        self.assertEqual(made["incomplete_by_error"], {"NotRun": 31})

    def test_a_log_of_another_bench_version_is_refused(self):
        self.run_small()
        self.log.write_bytes(self.log.read_bytes().replace(b'"bench_version": "2"', b'"bench_version": "9"'))
        self.assert_refused('bench_version is "9", this is 2', bench.to_recording, self.log, case_set("one", "two"))
        self.assert_refused('bench_version is "9" in the log, "2" now', self.run_small)

    def test_no_log_is_begun_when_the_budget_leaves_no_time(self):
        self.assertTrue(self.run_small(budget_s=0)["stopped_by_budget"])
        self.assertFalse(self.log.exists())

    def test_a_cut_at_every_byte_of_the_last_rows_and_the_header_resumes_to_the_same_log(self):
        answer = {"category": "billing", "needs_human": False, "note": "ü€😀\u2028\ud800\0"}
        self.run_small(Scripted(lambda case, trial: answer), trials=2)
        whole = self.log.read_bytes()
        rows = [bench.response_part(row) for row in self.rows()]
        lines = whole.splitlines(keepends=True)
        cuts = [*range(len(lines[0]) + 1), *range(len(whole) - len(lines[-1]) - len(lines[-2]), len(whole) + 1)]
        self.assertGreater(len(cuts), 700)
        with mock.patch("os.fsync"):        # thousands of syncs would test the disk
            for cut in cuts:
                self.log.write_bytes(whole[:cut])
                counts = self.run_small(Scripted(lambda case, trial: answer), trials=2)
                self.assertEqual([bench.response_part(row) for row in self.rows()], rows, f"cut at {cut}")
                whole_lines = sum(len(b"".join(lines[:number])) - 1 <= cut for number in range(2, len(lines) + 1))
                self.assertEqual(counts["ran"], len(rows) - whole_lines, f"cut at {cut}")

    def test_a_cut_inside_a_character_of_another_writers_utf8_is_dropped(self):
        self.run_small(Scripted(lambda case, trial: "ü€😀"), trials=1)
        header, *rows = self.log.read_text().splitlines()
        raw = [json.dumps(json.loads(line), ensure_ascii=False).encode() for line in (header, *rows)]
        last = raw[-1]
        for cut in range(1, len(last)):
            self.log.write_bytes(raw[0] + b"\n" + raw[1] + b"\n" + last[:cut])
            self.assertEqual(self.keys(), [("one", 0)], f"cut at {cut}")
        self.log.write_bytes(b"\n".join(raw))
        self.assertEqual(self.rows()[1]["output"], "ü€😀")

    def test_what_may_follow_a_torn_or_last_line_changes_nothing(self):
        self.run_small(trials=1)
        whole = self.log.read_bytes()
        torn = whole[:-20]
        for name, data, ran in (
                ("no newline", whole[:-1], 0), ("blank lines", whole + b"\n \n\n", 0), ("CRLF", whole.replace(b"\n", b"\r\n"), 0),
                ("BOM", b"\xef\xbb\xbf" + whole, 0), ("NUL bytes", whole + b"\0" * 512, 0), ("torn", torn, 1),
                ("torn, blank lines", torn + b"\n\n", 1), ("torn, CRLF", torn + b"\r\n", 1), ("torn, NUL bytes", torn + b"\0" * 99, 1),
                ("torn, CRLF file", torn.replace(b"\n", b"\r\n"), 1)):
            with self.subTest(name):
                self.log.write_bytes(data)
                self.assertEqual(self.run_small(trials=1)["ran"], ran)
                self.assertEqual(sorted(self.keys()), [("one", 0), ("two", 0)])
                self.assertEqual(self.run_small(trials=1)["ran"], 0)

    def test_a_dropped_line_is_reported_with_its_size(self):
        self.run_small(trials=1)
        self.log.write_bytes(self.log.read_bytes()[:-20])
        refused = []
        self.assert_refused("another plan", self.run_small, trials=2, warn=refused.append)
        self.assertEqual(refused, [])
        size = len(self.log.read_bytes().splitlines()[-1])
        warnings = []
        self.run_small(trials=1, warn=warnings.append)
        self.assertEqual(warnings, [f"{self.log}: a torn last line of {size} bytes is dropped"])

    def test_damage_is_refused_with_its_line_and_the_file_stays_as_it_was(self):
        self.run_small(trials=2)
        header, *rows = self.log.read_bytes().splitlines(keepends=True)
        row = json.loads(rows[1])

        def edited(**changes):
            return (json.dumps({**row, **changes}) + "\n").encode()
        unknown = {key: row[key] for key in row if key != "output"}
        for name, lines, text in (
                ("not JSON", [header, rows[0], b"{x\n", *rows[2:]], "line 3: not JSON"),
                ("cut in the middle", [header, rows[0], rows[1][:30] + b"\n", *rows[2:]], "line 3: not JSON"),
                ("blank in the middle", [header, rows[0], b"\n", *rows[1:]], "line 3: not JSON"),
                ("NaN", [header, edited(output=float("nan")), *rows[2:]], "line 2: not JSON: NaN"),
                ("foreign case", [header, edited(case_id="x")], 'line 2: case "x" is not of the plan'),
                ("foreign trial", [header, edited(trial=2)], "line 2: trial 2 is not of the plan"),
                ("trial as text", [header, edited(trial="1")], 'line 2: trial "1" is not of the plan'),
                ("trial as truth", [header, edited(trial=True)], "line 2: trial true is not of the plan"),
                ("twice", [header, *rows, rows[0]], 'line 6: trial 0 of case "one" is logged already in line 2'),
                ("neither", [header, (json.dumps(unknown) + "\n").encode()], "line 2: it has not exactly one of output and error"),
                ("claims NotRun", [header, (json.dumps({**unknown, "error": {"types": ["NotRun"], "message": ""}}) + "\n").encode()],
                 "line 2: a logged trial may not claim to be NotRun"),
                ("no latency", [header, edited(latency_s=None)], "line 2: latency_s is not"),
                ("a number", [header, b"12\n"], "line 2: it is not the row of a trial"),
                ("no header", rows, "line 1: it is not the header"),
                ("header twice", [header, header, *rows], "line 2: it is not the row"),
                ("torn header, then rows", [header[:50] + b"\n", *rows], "line 1: it is not the header")):
            with self.subTest(name):
                self.log.write_bytes(b"".join(lines))
                self.assert_refused(text, self.run_small, trials=2)
                self.assert_refused(f"{self.log}: {text}", bench.read_log, self.log)
                self.assertEqual(self.log.read_bytes(), b"".join(lines))

    def test_whole_values_in_a_row_are_damage_and_not_a_torn_line(self):
        self.run_small()
        whole = self.log.read_bytes()
        header, rows = whole.split(b"\n", 1)
        for data, line in ((whole.replace(b"\n", b"\r"), 1), (header + b"\n" + rows.replace(b"\n", b"\r"), 2), (whole + b'{"x": 1} more', 8)):
            self.log.write_bytes(data)
            self.assert_refused(f"line {line}: ", self.run_small)
            self.assertEqual(self.log.read_bytes(), data)

    def test_a_header_edited_by_hand_is_refused(self):
        self.run_small()
        header, rows = self.log.read_bytes().split(b"\n", 1)
        for changes, text in (({"trials": 10 ** 30}, "trials is not"), ({"trials": True}, "trials is not"), ({"run_again": "2"}, "run_again is not"),
                              ({"taken_over": None}, "taken_over is not"), ({"from": {}}, "from is not"), ({"environment": []}, "environment is not"),
                              ({"system": "x"}, "splits or system")):
            with self.subTest(text):
                data = json.dumps({**json.loads(header), **changes}).encode() + b"\n" + rows
                self.log.write_bytes(data)
                self.assert_refused(text, self.run_small)
                self.assert_refused(text, bench.to_recording, self.log, case_set("one", "two"))
                self.assertEqual(self.log.read_bytes(), data)
        other = json.dumps({**json.loads(rows.split(b"\n")[-2]), "case_id": "x"}).encode() + b"\n"
        for inputs, text in (({"one": "", "x": ""}, 'case "two" is not of the plan'),
                             ({"one": "", "two": "", "x": ""}, 'line 8: case "x" is not of the plan')):
            data = json.dumps({**json.loads(header), "case_inputs": inputs}).encode() + b"\n" + rows + other
            self.log.write_bytes(data)
            self.assert_refused(text, bench.to_recording, self.log, case_set("one", "two"))
            self.assert_refused("line 1: case_inputs is not what its case_set_sha256 says", self.run_small)
            self.assertEqual(self.log.read_bytes(), data)

    def test_a_file_that_is_no_log_is_refused_and_kept(self):
        for text in ("hello", "{", '{"name": "x"}', "[]\n", '{"bench_version": 1', "\x00a", "{}"):
            with self.subTest(text):
                self.log.write_text(text)
                if text in ("{", "\x00a"):
                    continue
                self.assert_refused("line 1: it is not the header", self.run_small)
                self.assertEqual(self.log.read_text(), text)

    def test_a_log_that_cannot_be_opened_is_refused(self):
        self.log.mkdir()
        self.assert_refused(f"the log cannot be opened: {IS_A_FOLDER}", self.run_small)
        self.assert_refused(f"the log cannot be read: {IS_A_FOLDER}", bench.read_log, self.log)
        self.assert_refused("log.jsonl: the log cannot be opened: ", bench.run_bench, Scripted(), case_set("a"), ["development"], 1,
                            self.write("file", "") / "log.jsonl")

    @unittest.skipUnless(hasattr(os, "mkfifo"), "this system has no named pipes among its files")
    def test_a_named_pipe_is_refused(self):
        os.mkfifo(self.log)
        self.assert_refused("not a regular file", self.run_small)

    @unittest.skipIf(hasattr(os, "geteuid") and os.geteuid() == 0, "root may write everywhere")
    def test_a_read_only_log_is_refused(self):
        self.run_small()
        self.log.chmod(0o400)
        self.assert_refused("Permission denied", self.run_small, trials=3)

    def test_an_empty_log_holds_no_run_yet(self):
        self.log.write_bytes(b"")
        self.assert_refused("holds no run yet", bench.read_log, self.log)
        self.assertEqual(self.run_small()["ran"], 6)

    def test_hostile_text_survives_the_log_the_recording_and_the_run_record(self):
        texts = ["\u2028\u2029\x85\x0c\x1c", "\ud800 lone", "\0", "\u202eright", "👩‍👩‍👧", "x" * 1_000_000, "a\r\nb", "</script>"]
        cases = case_set(*(case(f"c{number}\u2028") for number in range(len(texts))))
        system = Scripted(lambda case, trial: Answer(texts[int(case["id"][1])], {"reply": texts[int(case["id"][1])]}))
        bench.run_bench(system, cases, ["development"], 1, self.log)
        path = self.folder / "recording.json"
        harness.write(path, bench.to_recording(self.log, cases))
        record = harness.replay(harness.read_json(path), triage_task, cases)
        harness.write(path, record)
        self.assertEqual([row["output"] for row in harness.read_json(path)["results"]], texts)
        self.assertEqual([row["metadata"]["reply"] for row in record["results"]], texts)
        self.assertEqual(self.log.read_bytes().count(b"\n"), len(texts) + 1)
        self.assertTrue(self.log.read_bytes().isascii())


class ARun(InFolder):
    def test_the_budget_is_checked_between_trials(self):
        counts = self.run_small(Scripted(), budget_s=10, clock=steps(*range(0, 200, 3)))
        self.assertTrue(counts["stopped_by_budget"])
        self.assertEqual(counts["ran"] + counts["not_run"], 6)
        self.assertEqual(self.run_small(budget_s=0)["ran"], 0)
        self.assertFalse(self.run_small(budget_s=100)["stopped_by_budget"])

    def test_a_wall_clock_that_jumps_changes_nothing(self):
        with mock.patch("time.time", side_effect=itertools.cycle((1e9, -1e9))):
            self.assertEqual(self.run_small(budget_s=60)["ran"], 6)
        self.assertTrue(all(0 <= row["latency_s"] < 10 for row in self.rows()))

    def test_a_system_that_is_down_stops_the_run_and_its_trial_stays_unrun(self):
        def answer(case, trial):
            return SystemDown("start the server") if trial == 1 else dict(GOOD)
        with self.assertRaises(SystemDown) as caught:
            self.run_small(Scripted(answer))
        self.assertEqual(caught.exception.counts, {"planned": 6, "already_logged": 0, "ran": 2, "not_run": 4, "stopped_by_budget": False})
        self.assertEqual(self.keys(), [("one", 0), ("two", 0)])
        self.assertEqual(self.run_small()["ran"], 4)

    def test_an_error_that_is_about_a_reply_or_a_prompt_does_not_count_as_silence(self):
        overflow = type("ContextOverflow", (RuntimeError,), {})("too long")
        for error in (ValueError("no JSON"), overflow):
            self.log.unlink(missing_ok=True)
            self.assertEqual(self.run_small(Scripted(lambda case, trial: error), trials=8)["ran"], 16)

    def test_a_hook_that_misbehaves_is_named(self):
        for hook, text in (("check_model", "check_model of scripted raised ZeroDivisionError: division by zero"),
                           ("prime", "prime of scripted raised ZeroDivisionError"), ("server_facts", "server_facts of scripted raised")):
            self.assert_refused(text, self.run_small, Scripted(**{hook: lambda *cases: 1 / 0}))
        self.assert_refused("JSON cannot hold the server facts", self.run_small, Scripted(server_facts=lambda: {"x": {1}}))
        self.assertFalse(self.log.exists())

    @with_links
    def test_a_link_to_a_log_stays_when_nothing_was_run(self):
        link = self.folder / "link.jsonl"
        link.symlink_to(self.log.name)
        with self.assertRaises(SystemDown):
            bench.run_bench(Scripted(lambda case, trial: None, check_model=lambda: (_ for _ in ()).throw(SystemDown("x"))), case_set("a"), ["development"], 1, link)
        self.assertTrue(link.is_symlink() and not self.log.exists())
        bench.run_bench(Scripted(), case_set("a"), ["development"], 1, link)
        self.assertTrue(link.is_symlink() and self.log.exists())

    def test_a_system_that_changes_the_folder_or_forks_does_not_harm_the_log(self):
        with contextlib.chdir(self.folder):
            other = self.folder / "other"
            other.mkdir()
            counts = bench.run_bench(Scripted(lambda case, trial: os.chdir(other)), case_set("a"), ["development"], 3, "log.jsonl")
        self.assertEqual((counts["ran"], len(self.keys())), (3, 3))

    @unittest.skipUnless(hasattr(os, "fork"), "this system has no fork")
    def test_a_forked_child_does_not_hold_the_lock(self):
        with bench.LogFile(self.log):
            child = os.fork()
            if not child:
                time.sleep(30)
                os._exit(0)
        try:
            bench.LogFile(self.log).__exit__()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    @unittest.skipUnless(hasattr(os, "fork"), "this system has no fork")
    def test_a_fork_after_the_run_closes_nothing_of_the_child(self):
        with bench.LogFile(self.log) as log:
            number = log.fd
        with open(self.write("other", "x"), "rb") as other:
            self.assertEqual(other.fileno(), number)        # the log's number is another file's by now
            child = os.fork()
            if not child:
                with contextlib.suppress(OSError):
                    os.fstat(number)
                    os._exit(0)
                os._exit(1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_waiting_for_an_identity_is_told(self):
        class Away(Scripted):
            @property
            def model(self):
                return away.pop()()
        away, told = [lambda: "m", lambda: (_ for _ in ()).throw(SystemDown("away", may_return=True))], []
        progress = mock.Mock(note=lambda text, urgent: told.append(text))
        with mock.patch.object(bench, "WAIT_PAUSE_S", 0.01):
            self.assertEqual(self.run_small(Away(), wait_s=30, progress=progress)["ran"], 6)
        self.assertEqual(told[0], "the system is away, waiting up to 30 s")

    def test_a_system_that_is_down_at_the_start_leaves_no_log(self):
        def check_model():
            raise SystemDown("no model")
        with self.assertRaises(SystemDown):
            self.run_small(Scripted(check_model=check_model))
        self.assertFalse(self.log.exists())

    def test_five_trials_in_a_row_without_a_reply_stop_the_run(self):
        refused = [Rejection("message is blank"), *[ConnectionError("broken")] * 9]
        with self.assertRaises(SystemDown) as caught:
            self.run_small(Scripted(lambda case, trial: refused[trial]), trials=10, cases=("one",))
        self.assertEqual(len(self.rows()), 6)
        self.assertIn("5 trials in a row had no reply of the model, the last with ConnectionError: broken", str(caught.exception))

    def test_a_reply_that_cannot_be_used_is_still_a_reply(self):
        error = ValueError("no JSON")
        error.metadata = {"reply": "hm"}
        self.assertEqual(self.run_small(Scripted(lambda case, trial: error), trials=8)["ran"], 16)

    def test_an_output_that_cannot_be_logged_does_not_end_the_run(self):
        self.assertEqual(self.run_small(Scripted(lambda case, trial: {1, 2}), trials=8)["ran"], 16)
        self.assertEqual({row["error"]["types"][0] for row in self.rows()}, {"OutputError"})

    def test_waiting_for_a_server_goes_on_where_it_stopped(self):
        down = iter([SystemDown("away", may_return=True)] * 2)
        system = Scripted(lambda case, trial: next(down, dict(GOOD)) if trial == 1 else dict(GOOD))
        with mock.patch.object(bench, "WAIT_PAUSE_S", 0.01):
            self.assertEqual(self.run_small(system, wait_s=30)["ran"], 6)
        self.assertEqual(len(set(self.keys())), 6)

    def test_waiting_ends_though_the_server_answers_when_no_trial_does(self):
        system = Scripted(lambda case, trial: SystemDown("busy", may_return=True), check_model=lambda: None)
        with mock.patch.object(bench, "WAIT_PAUSE_S", 0.01), self.assertRaises(SystemDown):
            self.run_small(system, wait_s=0.2)
        self.assertEqual(self.rows(), [])

    def test_what_waiting_cannot_mend_is_not_waited_for(self):
        system = Scripted(lambda case, trial: SystemDown("no such model"))
        with self.assertRaises(SystemDown):
            self.run_small(system, wait_s=1000)

    def test_each_invocation_primes_with_the_cases_that_came_before(self):
        primed = []
        system = Scripted(prime=lambda cases: primed.append([entry["id"] for entry in cases]))
        self.run_small(system, cases=("a", "b", "c"), trials=2)
        self.assertEqual(primed, [["a", "b", "c"]])
        lines = self.log.read_bytes().splitlines(keepends=True)
        self.log.write_bytes(b"".join(lines[:3] + lines[4:6]))      # without c 0 and c 1
        primed.clear()
        self.run_small(system, cases=("a", "b", "c"), trials=2)
        self.assertEqual(primed, [["c", "a", "b"], ["c", "a", "b"]])

    def test_workers_run_every_trial_once_in_any_order(self):
        def answer(case, trial):
            time.sleep(random.Random(f"{case['id']}{trial}").random() / 500)
            return dict(GOOD)
        for workers in (2, 4, 9):
            self.log.unlink(missing_ok=True)
            self.assertEqual(self.run_small(Scripted(answer), trials=20, workers=workers)["ran"], 40)
            self.assertEqual(len(set(self.keys())), 40)
            self.assertEqual({row["metadata"]["workers"] for row in self.rows()}, {workers})

    def test_a_server_that_goes_away_under_many_workers_costs_no_trial(self):
        system = Scripted(lambda case, trial: SystemDown("gone") if trial == 3 else dict(GOOD))
        with self.assertRaises(SystemDown) as caught:
            self.run_small(system, trials=6, workers=3)
        counts = caught.exception.counts
        self.assertEqual(len(set(self.keys())), counts["ran"])
        self.assertEqual(counts["ran"] + counts["not_run"], 12)
        self.assertEqual(self.run_small(trials=6, workers=3)["already_logged"], counts["ran"])

    @replaceable
    def test_a_log_that_is_removed_or_replaced_is_noticed_before_the_next_trial(self):
        def removed(case, trial):
            if trial == 1:
                self.log.unlink()
            return dict(GOOD)
        self.assert_refused("removed or replaced", self.run_small, Scripted(removed))

        def replaced(case, trial):
            if trial == 1:
                shutil.copy(self.log, self.folder / "copy")
                os.replace(self.folder / "copy", self.log)
            return dict(GOOD)
        self.assert_refused("removed or replaced", self.run_small, Scripted(replaced))

        def written(case, trial):
            with open(self.log, "ab") as file:
                file.write(b"x")
            return dict(GOOD)
        self.log.unlink(missing_ok=True)
        self.assert_refused("changed under the run", self.run_small, Scripted(written))

    def test_a_disk_that_fails_stops_the_run_with_whole_rows(self):
        self.run_small(trials=1)
        whole = self.log.read_bytes()
        real = os.write

        def short(fd, data):
            return real(fd, bytes(data)[:7])
        self.log.unlink()
        with mock.patch("os.write", short):
            self.run_small(trials=1)
        self.assertEqual(len(self.log.read_bytes().splitlines()), len(whole.splitlines()))
        for name in ("os.write", "os.fsync"):
            self.log.unlink()
            self.run_small(trials=3, budget_s=1, clock=steps(0, 0, 0, 2))
            before = self.log.read_bytes()
            with mock.patch(name, side_effect=OSError(errno.EIO, "Input/output error")):
                self.assert_refused(f"{self.log}: the log cannot be written: Input/output error", self.run_small)
            self.assertEqual(self.log.read_bytes(), before)
        self.assertEqual(self.run_small()["ran"], 6)

    def test_a_sync_follows_every_row(self):
        with mock.patch("os.fsync", wraps=os.fsync) as synced:
            self.run_small()
        self.assertEqual(synced.call_count, 1 + 1 + (not harness.ON_WINDOWS) + 6)      # the new file, the header, the folder, the rows

    def test_who_accepts_to_lose_some_trials_has_fewer_syncs_and_the_last_rows_are_synced_too(self):
        for answer, rows in ((lambda case, trial: dict(GOOD), 6), (lambda case, trial: SystemDown("x") if trial == 2 else dict(GOOD), 4)):
            self.log.unlink(missing_ok=True)
            with mock.patch("os.fsync", wraps=os.fsync) as synced, contextlib.suppress(SystemDown):
                self.run_small(Scripted(answer), sync_every=3)
            self.assertEqual((len(self.rows()), synced.call_count), (rows, 1 + 1 + (not harness.ON_WINDOWS) + 2))
            self.assertEqual(bench.read_log(self.log)[0]["sync"], 3)


class Extending(InFolder):
    plan_line = re.compile(rb'{"plan": {"trials": (\d+), "at": "[0-9T:.-]+Z"}, "tie": "[0-9a-f]{16}"}\n')

    def test_a_log_grows_in_place_and_keeps_its_bytes(self):
        self.run_small(trials=2)
        kept = self.log.read_bytes()
        system = Scripted()
        self.assertEqual(self.run_small(system, trials=3, extend=True)["already_logged"], 4)
        self.assertEqual(system.seen, [("one", 2), ("two", 2)])
        grown = self.log.read_bytes()
        self.assertTrue(grown.startswith(kept))
        self.assertEqual(self.plan_line.match(grown, len(kept))[1], b"3")
        for options in ({}, {"extend": True}):      # the extended log is as any other of that plan
            self.assertEqual(self.run_small(trials=3, **options)["already_logged"], 6)
        self.assertEqual(self.log.read_bytes(), grown)
        for trials in (2, 4):
            self.assert_refused(f"trials is 3 in the log, {trials} now", self.run_small, trials=trials)
        self.assert_refused("trials is 3 in the log, 2 now", self.run_small, trials=2, extend=True)

    def test_an_unfinished_log_is_extended_twice_and_goes_on_where_it_was(self):
        self.run_small(trials=2, budget_s=1.5, clock=steps(0, 0, 1, 1, 1, 1, 2))
        logged = len(self.keys())
        self.assertTrue(0 < logged < 4)
        self.run_small(trials=3, extend=True, budget_s=1.5, clock=steps(0, 0, 1, 1, 1, 2))
        after = len(self.keys())
        self.run_small(trials=5, extend=True)
        self.assertEqual(self.keys(), [(case_id, trial) for trial in range(5) for case_id in ("one", "two")])
        header, told = bench.read_log(self.log)[0], bench.to_recording(self.log)["provenance"]["extended"]
        self.assertEqual((header["trials"], header["extended"]), (5, told))
        self.assertEqual([(step["trials"], step["after"]) for step in told], [(3, logged), (5, after)])
        self.assertEqual([len(trials) for trials in bench.to_recording(self.log)["responses"].values()], [5, 5])

    def test_wherever_the_power_fails_the_same_command_goes_on(self):
        self.run_small(trials=1)
        kept = len(self.log.read_bytes())
        self.run_small(trials=2, extend=True)
        whole = self.log.read_bytes()
        line = self.plan_line.match(whole, kept).end() - kept
        for cut in (kept, kept + 1, kept + 9, kept + 20, kept + line - 2, kept + line - 1, kept + line, kept + line + 30):
            self.log.write_bytes(whole[:cut] + b"\0" * (cut % 2))
            warnings = []
            self.assertEqual(self.run_small(trials=2, extend=True, warn=warnings.append)["already_logged"], 2, cut)
            self.assertEqual((len(self.rows()), len(self.plan_line.findall(self.log.read_bytes()))), (4, 1))
            self.assertTrue(self.log.read_bytes().startswith(whole[:kept]))

    def test_a_system_that_is_down_or_a_budget_of_nothing_extends_no_log(self):
        self.run_small(trials=1)
        before = self.log.read_bytes()

        def check_model():
            raise SystemDown("gone")
        with self.assertRaises(SystemDown):
            self.run_small(Scripted(check_model=check_model), trials=2, extend=True)
        self.run_small(trials=2, extend=True, budget_s=0)
        self.assertEqual(self.log.read_bytes(), before)

    def test_lines_that_extend_nothing_are_damage(self):
        self.run_small(trials=2)
        lines = self.log.read_bytes().splitlines(keepends=True)
        for line in (b'{"plan": 3}', b'{"plan": {"trials": 2, "at": "now"}}', b'{"plan": {"trials": true, "at": ""}}',
                     b'{"plan": {"trials": 1e9, "at": ""}}', b'{"plan": [', b' {"plan": {"trials": 3, "at": "now"}}'):
            self.log.write_bytes(b"".join([*lines[:3], line + b"\n", *lines[3:]]))
            self.assert_refused("line 4: ", bench.read_log, self.log)
        header = json.loads(lines[0])
        self.log.write_bytes(json.dumps({**header, "extended": [{"trials": 9}]}).encode() + b"\n" + b"".join(lines[1:]))
        self.assertNotIn("extended", bench.read_log(self.log)[0])       # only its own lines extend a log

    def test_the_trials_of_an_extended_log_are_taken_over_and_reported(self):
        self.run_small(trials=1)
        self.run_small(trials=2, extend=True)
        new = self.folder / "new.jsonl"
        self.assertEqual(bench.run_bench(Scripted(), case_set("one", "two"), ["development"], 3, new, sources=[self.log])["ran"], 2)
        done = called(bench, "--trials", "1", "--log", new.with_name("b.jsonl"))
        called(bench, "--trials", "12", "--extend", "--log", new.with_name("b.jsonl"))
        status, out, _ = called(report, new.with_name("b.jsonl"))
        self.assertEqual((done[0], status), (0, 0))
        self.assertIn("9 cases x 12 trials", out)
        self.assertIn("note: extended to 12 trials a case after 9 trials, at 20", out)


class Shards(InFolder):
    CASES = case_set("one", "two", "three")

    def setUp(self):
        super().setUp()
        self.loaded = harness.load_cases(CASE_FILE, triage_task)

    def part(self, part, of=3, trials=7, system=None, name=None, loaded=None, **options):
        """The log of one part of a plan, which has been run."""
        path = self.folder / (name or f"{part}-of-{of}.jsonl")
        bench.run_bench(system or Scripted(lambda case, trial: {**GOOD, "needs_human": trial % 2 == 1}), loaded or self.CASES, ["development"], trials,
                        path, shard={"part": part, "of": of}, task=triage_task, **options)
        return path

    def graded(self, *paths, loaded=None):
        return bench.graded_logs(list(paths), triage_task, loaded or self.CASES, False)

    def test_each_part_is_whole_rounds_and_all_parts_are_the_plan(self):
        logs = [self.part(part) for part in (1, 2, 3)]
        trials = [[row["trial"] for row in bench.read_log(log)[1]] for log in logs]
        self.assertEqual(trials, [[0, 0, 0, 3, 3, 3, 6, 6, 6], [1, 1, 1, 4, 4, 4], [2, 2, 2, 5, 5, 5]])
        self.assertEqual([bench.read_log(log)[0]["shard"] for log in logs], [{"part": part, "of": 3} for part in (1, 2, 3)])

    def test_a_part_is_resumed_as_itself_only(self):
        log = self.part(2)
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(lines[:4]))
        self.part(2)
        self.assertEqual(len(bench.read_log(log)[1]), 6)
        self.assert_refused('shard.part is 2 in the log, 3 now', self.part, 3, name=log.name)
        self.assert_refused('shard is {"part": 2, "of": 3} in the log, null now', bench.run_bench, Scripted(), self.CASES, ["development"], 7, log)
        log.write_bytes(lines[0].replace(b'"part": 2', b'"part": 1') + b"".join(lines[1:]))
        self.assert_refused("line 2: trial 1 is not of the plan", bench.read_log, log)
        for shard in (b'{"part": 4, "of": 3}', b'{"part": 0, "of": 3}', b'{"part": true, "of": 3}', b'[2, 3]', b'{"of": 3}'):
            log.write_bytes(lines[0].replace(b'{"part": 2, "of": 3}', shard))
            self.assert_refused("line 1: shard does not say which part of the plan it is", bench.read_log, log)

    def test_merged_parts_report_what_one_run_does_in_whatever_order(self):
        system = lambda: model_triage.Bayes()
        parts = [self.part(part, trials=5, system=system(), loaded=self.loaded) for part in (1, 2, 3)]
        bench.run_bench(system(), self.loaded, ["development"], 5, self.log, task=triage_task)
        whole = self.graded(self.log, loaded=self.loaded)
        hashes = set()
        for order in itertools.permutations(parts):
            merged = self.graded(*order, loaded=self.loaded)
            one, other = report.system_report(whole), report.system_report(merged)
            for key in ("verdicts", "per_case", "curve", "pass_rate", "flaky_cases", "not_run", "failures_by_check"):
                self.assertEqual({**one, "per_case": 0}.get(key), {**other, "per_case": 0}.get(key), key)
            self.assertEqual([[row["output"] for row in rows] for _, rows in report.case_rows(merged)],
                             [[row["output"] for row in rows] for _, rows in report.case_rows(whole)])
            hashes.add(merged.manifest["recording_sha256"])
        recording = bench.to_recording(list(reversed(parts)), self.loaded)
        self.assertEqual(hashes, {harness.recording_sha256(recording)})
        self.assertEqual([shard["trials"] for shard in recording["provenance"]["shards"]], [18, 18, 9])
        self.assertNotIn("command", recording["provenance"])

    def test_a_trial_in_two_logs_counts_once_and_two_results_are_refused(self):
        parts = [self.part(1, 2), self.part(2, 2)]
        copy_of = self.part(1, 3, name="again.jsonl")
        merged = self.graded(*parts, copy_of)
        self.assertEqual((merged.told(), sum(merged.setups.values())), (21, 21))
        liar = self.part(1, 3, name="liar.jsonl", system=Scripted())
        text = f'trial 3 of case "one" has one result in {liar} and another in {parts[1]}: a trial counts once'
        self.assert_refused(text, self.graded, liar, *parts)
        self.assert_refused("a trial counts once", bench.to_recording, [liar, *parts], self.CASES)
        self.assert_refused("a trial counts once", bench.run_bench, Scripted(), self.CASES, ["development"], 7, self.log, sources=[liar, *parts])

    def test_logs_of_another_plan_are_refused(self):
        first = self.part(1)
        for name, options, key in (("a", {"trials": 8}, "trials is 7 there, 8 here"), ("b", {"loaded": case_set("one", "two")}, "case_set_sha256 is "),
                                   ("c", {"system": Scripted(model="scripted@2")}, 'system.model is "m" there, "scripted@2" here')):
            other = self.part(2, name=name, **options)
            for function in (self.graded, lambda *paths: bench.to_recording(list(paths))):
                self.assert_refused(key, function, other, first)

    def test_what_no_log_holds_is_not_run_and_the_parts_that_lack_it_are_named(self):
        self.part(1, hardware="desk"), self.part(2, hardware="rack", budget_s=1.5, clock=steps(0, 0, 1, 1, 1, 1, 2))
        done = report_on(*sorted(self.folder.glob("*-of-3.jsonl")), "--cases", self.write("cases.json", json.dumps(
            {"name": "small", "cases": self.CASES["cases"]})))
        self.assertEqual(done.status, 0, done.err)
        logged = len(bench.read_log(self.folder / "2-of-3.jsonl")[1])
        self.assertIn("not run, so no curve and no interval of the whole; run the parts that\n  lack them\n", done.out)
        self.assertIn("note: merged from 2 logs of parts of the plan: 1/3, 2/3\n", done.out)
        self.assertIn("note: the parts differ in hardware: desk (1/3); rack (2/3)\n", done.out)
        self.assertIn(f"note: not run: {6 - logged} trials of part 2/3, 6 trials of part 3/3\n", done.out)

    def test_a_part_alone_says_what_it_is(self):
        for words in (("--shard", "2/2"), ("--shard", "1/2", "--budget-s", "0")):
            status, out, _ = self.in_folder(bench, "--trials", "4", *words)
            self.assertEqual(status, 0)
        report_line, parts_line = self.in_folder(bench, "--trials", "4", "--shard", "2/2")[1].splitlines()[-2:]
        self.assertTrue(report_line.endswith("report.py runs/bayes-2-of-2.jsonl"))
        self.assertTrue(parts_line.startswith(f"parts   {harness.PYTHON} ") and parts_line.endswith("report.py runs/bayes-*-of-2.jsonl"))
        self.assertIn("part 2 of 2 of the plan is whole: report it with the logs of the other parts",
                      " ".join(self.in_folder(report, "runs/bayes-2-of-2.jsonl")[1].split()))
        log = self.folder / "runs" / "bayes-2-of-2.jsonl"
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:5]))
        self.assertIn("bench.py --trials 4 --shard 2/2\n", self.in_folder(report, "runs/bayes-2-of-2.jsonl")[1])

    def test_parts_are_converted_taken_over_and_compared_as_one(self):
        for part in (1, 2):
            self.in_folder(bench, "--trials", "3", "--shard", f"{part}/2")
        logs = ["runs/bayes-1-of-2.jsonl", "runs/bayes-2-of-2.jsonl"]
        status, out, _ = self.in_folder(bench, "--convert", "r.json", "--log", logs[1], "--log", logs[0])
        self.assertEqual(status, 0)
        self.assertEqual(sum("output" in one for rows in json.loads((self.folder / "r.json").read_text())["responses"].values() for one in rows), 21)
        self.assertIn("already logged 27, ran 0", self.in_folder(bench, "--trials", "3", "--from", logs[0], "--from", logs[1])[1])
        status, out, _ = self.in_folder(report, *logs, "runs/bayes.jsonl", "--out", "x.html")
        self.assertIn("bayes (1) against bayes (2), trials paired by number\n", out)
        self.assertEqual(self.in_folder(report, *logs, "--out", "x.svg", "--out", "x.json")[0], 0)
        self.assertEqual(self.in_folder(report, "--verify", "x.json", *logs)[:2], (0, "MATCH\n"))
        self.assertEqual(self.in_folder(report, "--verify", "x.json", logs[0])[0], 1)
        self.assertEqual(self.in_folder(report, "runs/bayes.jsonl", "--no-worse-than", "runs/bayes.jsonl", "--out", "b.json")[0], 0)
        self.assertEqual(self.in_folder(report, "--verify", "b.json", "runs/bayes.jsonl", "runs/bayes.jsonl")[0], 0)
        self.assertEqual(self.in_folder(report, *logs, "runs/bayes.jsonl", "--out", "y.svg")[0], 2)
        self.assertEqual(self.in_folder(bench, "--trials", "3", "--log", logs[0], "--log", logs[1])[0], 2)

    def test_parts_are_extended_each_by_itself(self):
        for trials in (3, 5):
            logs = [self.part(part, 2, trials=trials, extend=True) for part in (1, 2)]
        merged = self.graded(*logs)
        self.assertEqual((merged.told(), merged.trials), (15, 5))
        self.assertEqual([shard["extended"][0]["after"] for shard in merged.manifest["provenance"]["shards"]], [6, 3])

    def test_the_schedulers_say_which_part_it_is(self):
        def slurm(index, first, last, count, step=1):
            return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in zip(("ID", "MIN", "MAX", "COUNT", "STEP"), (index, first, last, count, step))}
        for text, variables, told in (
                ("2/8", {}, (2, 8)), ("auto", slurm(1, 1, 8, 8), (1, 8)), ("auto", slurm(8, 1, 8, 8), (8, 8)), ("auto", slurm(0, 0, 7, 8), (1, 8)),
                ("auto", slurm(4, 0, 6, 4, 2), (3, 4)), ("auto/4", slurm(4, 0, 6, 4, 2), (3, 4)), ("auto/3", {"JOB_COMPLETION_INDEX": "0"}, (1, 3)),
                ("auto/3", {"JOB_COMPLETION_INDEX": "2"}, (3, 3)), ("auto/3", {"PARALLEL_SEQ": "3", "PARALLEL_JOBSLOT": "1"}, (3, 3)),
                ("auto", {}, "none of SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX, PARALLEL_SEQ is set: give I/N"),
                ("auto", slurm(3, 3, 3, 1), "tell"), ("auto/4", slurm(3, 3, 3, 1), "are not the 4 of auto/4"), ("auto", slurm(3, 1, 7, 3), "are not one range"),
                ("auto", {"SLURM_ARRAY_TASK_ID": "3"}, "SLURM_ARRAY_TASK_MIN is '', not a number"), ("auto", {"PARALLEL_SEQ": "1"}, "give auto/N"),
                ("auto", {"JOB_COMPLETION_INDEX": "1"}, "give auto/N"), ("auto/2", {"PARALLEL_SEQ": "3"}, "is part 3 of 2"),
                ("auto/2", {"PARALLEL_SEQ": "x"}, "not a number"), ("auto/2", {**slurm(1, 1, 2, 2), "PARALLEL_SEQ": "1"}, "are both set"),
                ("0/2", {}, "is part 0 of 2: parts go from 1 to 2"), ("3/2", {}, "is part 3 of 2"), ("2", {}, "is none of I/N, auto and auto/N"), ("1/0", {}, "is part 1 of 0")):
            with self.subTest(text=text, variables=variables), mock.patch.dict(os.environ, variables):
                if isinstance(told, tuple):
                    self.assertEqual(bench.shard_text(text), dict(zip(("part", "of"), told)))
                    continue
                with self.assertRaises(bench.argparse.ArgumentTypeError) as caught:
                    bench.shard_text(text)
                self.assertIn(told, str(caught.exception))
        self.assertIn("12 parts of 10 trials a case leave parts without any", called(bench, "--shard", "1/12")[2])

    def test_a_part_primes_once_since_every_round_has_the_same_order(self):
        with FakeOllama() as server:
            bench.run_bench(small(), self.loaded, ["development"], 6, self.log, shard={"part": 2, "of": 2})
        trials = [chat["options"]["seed"] for chat in server.chats if chat["options"]["num_predict"] == 64]
        self.assertEqual(trials, [1001] * 7 + [1003] * 7 + [1005] * 7)
        self.assertEqual(len(server.chats), 2 + len(trials))        # a probe, and what comes before the first trial

    def test_what_a_run_record_claims_of_parts_may_be_anything(self):
        for odd in (3, [3], [{"part": 1}], [{"part": 1, "of": 10 ** 8, "trials": "x", "environment": [], "server_versions": {"a": 1}}], {"part": 1},
                    [{"part": 1, "of": 2, "trials": -5, "environment": {"server": [[]]}, "started_at": 4}]):
            made = run_record({"a": "+.", "b": "+."}, provenance={"shards": odd, "shard": odd})
            self.assertIn("small", "\n".join(report.notes({**report.system_report(made), "label": "small"})) + "small")
            page_of(made)


class Labels(InFolder):
    TASK = {"name": "mood", "messages": [{"role": "system", "content": "Be short.\nBe kind."}, {"role": "user", "content": "{input}"}],
            "cases": [{"id": "a", "input": "good day", "expect": "fine"}]}

    def command(self, *words):
        return SimpleNamespace(**dict(zip(("returncode", "stdout", "stderr"), self.in_folder(bench, *words))))

    def test_a_label_names_the_log_and_stands_in_the_titles(self):
        for words in (("--trials", "2"), ("--trials", "2", "--label", "terse")):
            self.assertEqual(self.command(*words).returncode, 0)
        plain, terse = self.folder / "runs" / "bayes.jsonl", self.folder / "runs" / "bayes-terse.jsonl"
        self.assertEqual((bench.read_log(terse)[0]["label"], "label" in bench.read_log(plain)[0]), ("terse", False))
        status, out, _ = called(report, plain, terse, "--out", self.folder / "page.html")
        self.assertEqual(status, 0)
        self.assertIn("\nbayes@4bf543270e33 terse\n", out)
        self.assertIn("<h2><bdi>bayes terse</bdi></h2>", (self.folder / "page.html").read_text(encoding="utf-8"))

    def test_a_label_is_no_part_of_the_plan(self):
        self.run_small(told={"label": "terse"})
        self.assertEqual(self.run_small(told={"label": "other"})["already_logged"], 6)
        new = self.folder / "new.jsonl"
        self.assertEqual(bench.run_bench(Scripted(), case_set("one", "two"), ["development"], 3, new, sources=[self.log])["ran"], 0)

    def test_a_label_is_a_short_line(self):
        for label in ("", " ", "a\nb", "x" * 41, "\x1b[2J"):
            done = self.command("--label", label)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1))
            self.assertIn("is not one line of 1 to 40 characters", done.stderr)

    def test_the_cases_that_changed_are_named_and_how_the_trials_of_the_others_are_kept(self):
        one, two, three = ({"id": name, "input": f"{name}!", "expect": "fine"} for name in ("one", "two", "three"))
        words = ("mood.json", "--model", "smollm2:135m", "--trials", "1")
        with FakeOllama(usual={"body": chat_body("fine")}):
            self.write("mood.json", json.dumps({**self.TASK, "cases": [one, two]}))
            self.assertEqual(self.command(*words).returncode, 0)
            log = "runs/mood-smollm2-135m.jsonl"
            self.assertIn(f"{log}: it exists and was not begun with these --from logs; give another --log\n", self.command(*words, "--from", log).stderr)
            self.write("mood.json", json.dumps({**self.TASK, "cases": [{**one, "input": "Ho"}, three]}))
            *shown, error = self.command(*words).stderr.splitlines()
        self.assertEqual(shown, ["case one: another input than in the log", "case two: only in the log", "case three: not in the log"])
        self.assertIn(f"{log} was written for another plan: case_set_sha256 is ", error)
        self.assertTrue(error.endswith("; --from this log and another --log take over the trials of the cases that are the same"), error)

    def test_a_changed_prompt_is_shown_line_by_line_and_a_label_offered(self):
        with FakeOllama(usual={"body": chat_body("fine")}) as server:
            task = self.write("mood.json", json.dumps(self.TASK))
            words = ("mood.json", "--model", "smollm2:135m", "--trials", "1")
            self.assertEqual(self.command(*words).returncode, 0)
            task.write_text(json.dumps(self.TASK).replace("Be kind.", "Be \\u001b[2J rude."))
            server.requests.clear()
            done = self.command(*words)
            *shown, error = done.stderr.splitlines()
            self.assertEqual((done.returncode, server.chats), (1, []))
            self.assertEqual(shown, ["--- in the log", "+++ now", "@@ -1,3 +1,3 @@", " system: Be short.", "-system: Be kind.",
                                     "+system: Be \\x1b[2J rude.", " user: {input}"])
            self.assertTrue("runs/mood-smollm2-135m.jsonl was written for another plan: system.prompt is " in error, error)
            self.assertTrue(error.endswith("; give the log's own plan, or another --log, or a --label for a log beside it"), error)
            self.assertEqual(self.command(*words, "--label", "Rude One").returncode, 0)
            self.assertIn("runs/mood-smollm2-135m-rude-one-", self.command(*words, "--label", "Rude One").stdout)
            named = self.command(*words, "--log", "runs/mood-smollm2-135m.jsonl").stderr.splitlines()
            self.assertEqual((named[:-1], named[-1].endswith("or another --log")), (shown, True))

    def test_the_prompt_of_an_older_log_is_compared_too(self):
        old = {"system": {"prompt": "a\nb"}}
        self.assertEqual(bench.prompt_difference(old, {"system": {"prompt": "a\nc"}, "asked": {"messages": []}})[2:], ["@@ -1,2 +1,2 @@", " a", "-b", "+c"])
        for odd in ({"messages": 3}, {"messages": [3, {"role": [], "content": None}]}, {}):
            self.assertIsInstance(bench.prompt_difference({**old, "asked": odd}, {**old, "asked": {"messages": [{"role": "user", "content": "x"}]}}), list)
        many = {"system": {"prompt": "\n".join(map(str, range(90)))}}
        self.assertEqual(bench.prompt_difference(old, many)[-1], "and 55 more lines")


class Ties(InFolder):
    """A row is tied to the header and to its place."""

    def lines(self):
        return self.log.read_bytes().splitlines(keepends=True)

    def faults(self, *lines):
        """The numbers of the lines that are not tied, and of those without a tie, of a log of these lines."""
        self.log.write_bytes(b"".join(lines))
        with open(self.log, "rb") as file:
            reader = bench.reader_of(file, self.log)
            list(reader.rows())
        return reader.loose, reader.untied

    def test_a_tie_is_the_hash_of_the_tie_before_and_of_the_line_without_its_own(self):
        self.run_small(trials=2)
        header, *rows = self.log.read_text().splitlines()
        tie = hashlib.sha256(header.encode()).hexdigest()[:16]
        for row in rows:
            value = json.loads(row)
            told = value.pop("tie")
            tie = hashlib.sha256((tie + json.dumps(value)).encode()).hexdigest()[:16]
            self.assertEqual(told, tie)

    def test_rows_that_were_changed_removed_swapped_or_pasted_are_found(self):
        self.run_small()
        header, *rows = self.lines()
        self.assertEqual(self.faults(header, *rows), ([], []))
        other = header.replace(b'"trials": 3', b'"trials": 4')
        edited = rows[1].replace(b"billing", b"account")
        bare = re.sub(rb', "tie": "[0-9a-f]*"', b"", rows[1])
        for lines, found in (([other, *rows], ([2], [])), ([header, rows[0], edited, *rows[2:]], ([3], [])),
                             ([header, *rows[:1], *rows[2:]], ([3], [])), ([header, *rows[1:]], ([2], [])),
                             ([header, rows[1], rows[0], *rows[2:]], ([2, 3, 4], [])),
                             ([header, rows[0], bare, *rows[2:]], ([], [3]))):
            with self.subTest(found=found):
                self.assertEqual(self.faults(*lines), found)
        self.log.unlink()
        self.run_small(Scripted(lambda case, trial: {"category": "other", "needs_human": True}))
        pasted = self.lines()[2]
        self.assertEqual(self.faults(header, rows[0], pasted, *rows[2:]), ([3, 4], []))

    def test_a_log_without_any_tie_is_no_log_of_this_version(self):
        self.run_small(trials=1)
        self.log.write_bytes(re.sub(rb', "tie": "[0-9a-f]*"', b"", self.log.read_bytes()))
        warnings = []
        self.run_small(trials=1, warn=warnings.append)
        self.assertEqual(len(warnings), 1)
        self.assertIn("no line has a tie, as those of this version have: something else wrote or changed the log", warnings[0])

    def test_resuming_keeps_the_chain_also_after_a_torn_line(self):
        whole = Scripted(lambda case, trial: {**GOOD, "n": [case["id"], trial]})
        self.run_small(whole)
        lines = self.lines()
        self.log.write_bytes(b"".join(lines[:4]) + lines[4][:-9])
        self.run_small(whole)
        self.assertEqual(self.faults(*self.lines()), ([], []))
        self.run_small(whole, trials=5, extend=True)
        self.assertEqual(self.faults(*self.lines()), ([], []))

    def test_a_taken_over_row_gets_a_tie_of_its_new_place(self):
        self.run_small(trials=2)
        old = self.log.rename(self.folder / "old.jsonl")
        self.run_small(trials=3, sources=[old])
        self.assertEqual(self.faults(*self.lines()), ([], []))

    def test_resuming_warns_of_a_loose_row_once_and_names_the_line(self):
        self.run_small(trials=2)
        header, *rows = self.lines()
        self.log.write_bytes(b"".join([header, rows[0], *rows[2:]]))
        warnings = []
        self.assertEqual(self.run_small(trials=2, warn=warnings.append)["ran"], 1)
        self.assertEqual(warnings, [
            f"{self.log}: line 3 is not tied to the line before it: one of the two was changed, or a line was removed, added "
            "or moved there; its trials are counted as they stand, report.py --verify tells all"])

    def test_a_part_of_a_log_takes_up_the_chain_where_it_begins(self):
        self.run_small()
        data, places = self.log.read_bytes(), [0]
        for line in self.lines():
            places.append(places[-1] + len(line))
        header = bench.read_log(self.log)[0]
        with open(self.log, "rb") as file:
            for start, stop in ((places[1], places[3]), (places[3], len(data))):
                reader = bench.LogReader(file, self.log, header=header, start=start, stop=stop)
                list(reader.rows())
                self.assertEqual((reader.loose, reader.untied), ([], []))
            file_of = io.BytesIO(data.replace(b'"trial": 1', b'"trial": 2', 1))
            reader = bench.LogReader(file_of, self.log, [], header, places[3], places[4])
            list(reader.rows())
            self.assertEqual(reader.loose, [2])

    def test_a_log_of_the_first_version_goes_on_without_ties(self):
        shutil.copy(HERE / "recorded/bayes.jsonl", self.log)
        lines = self.lines()
        self.log.write_bytes(b"".join(lines[:-1]))
        self.assertEqual(called(bench, "--log", self.log)[0], 0)
        self.assertNotIn("tie", json.loads(self.lines()[-1]))
        self.assertEqual(self.faults(*self.lines()), ([], []))


class Proof(InFolder):
    """A report that is made again from its log."""
    KEYGEN = shutil.which("ssh-keygen")
    RECORDED = HERE / "recorded" / "bayes.jsonl"
    made = []       # a log, once

    def setUp(self):
        super().setUp()
        self.report = self.folder / "report.json"
        self.enterContext(contextlib.chdir(self.folder))
        self.enterContext(mock.patch.object(sys, "stdin", None))      # nobody is there to be asked for a passphrase

    def begin(self, *words):
        """A log of 3 trials a case, of the second version, and its report."""
        if not Proof.made:
            self.assertEqual(called(bench, "--trials", 3, "--log", "log.jsonl")[0], 0)
            Proof.made.append(self.log.read_bytes())
        self.log.write_bytes(Proof.made[0])
        self.make("log.jsonl", *words)

    def make(self, *words):
        self.assertEqual(called(report, *words, "--out", "report.json")[0], 0)

    def begin_run(self):
        """A run record of the log."""
        self.begin()
        called(bench, "--log", "log.jsonl", "--convert", "recording.json")
        called(harness, "run", "--recording", "recording.json", "--out", "run.json")
        return harness.read_json("run.json")

    def verified(self, *words):
        status, out, err = called(report, "--verify", "report.json", *(words or ["log.jsonl"]))
        self.assertNotIn("error", err)
        self.assertEqual(status, 0 if out.startswith("MATCH\n") else 1)
        return out.splitlines()

    def change(self, name, change):
        value = harness.read_json(name)
        change(value)
        harness.write(name, value)

    def tie_again(self, name, change):
        """The rows of a log changed by somebody who knows how they are tied."""
        with bench.open_log(name) as file:
            header, *rows = map(json.loads, file)
        with bench.LogFile(self.folder / "forged.jsonl") as log:
            log.append([header, *(change({key: row[key] for key in row if key != "tie"}) for row in rows)])
        os.replace("forged.jsonl", name)

    def sign(self, who="alice", **options):
        """A key of somebody who may sign, and the report signed with it."""
        subprocess.run([self.KEYGEN, "-q", "-t", "ed25519", "-N", options.get("passphrase", ""), "-C", who, "-f", who], check=True)
        self.write("allowed", f"{who}@example.com {Path(f'{who}.pub').read_text()}")
        return called(report, "log.jsonl", "--out", "report.json", "--sign", who)

    # What each row of the README's table does, by its second column.

    def a_figure_of_the_report(self):
        self.begin()
        self.change("report.json", lambda made: made["systems"][0]["verdicts"].update({"pass": 27}))

    def a_verdict_in_a_run_record_and_the_report_made_of_it(self):
        record = self.begin_run()
        number = next(number for number, row in enumerate(record["results"]) if row["verdict"] == "fail")
        record["results"][number].update(verdict="pass", check=None, reason=None)
        harness.write("run.json", record)
        self.make("run.json")
        return "run.json"

    def an_output_in_a_run_record(self):
        record = self.begin_run()
        row, = [row for row in record["results"] if (row["case_id"], row["trial"]) == ("late-order", 0)]
        row.update(output={"category": "billing", "needs_human": False}, verdict="fail", check="triage-outcome",
                   reason='category is "billing", expected "delivery"')
        harness.write("run.json", record)
        self.make("run.json")
        return "run.json"

    def the_last_row_of_the_log_cut_off(self):
        self.begin()
        self.log.write_bytes(b"".join(self.log.read_bytes().splitlines(keepends=True)[:-1]))

    def two_rows_of_the_log_swapped(self):
        self.begin()
        header, one, two, *rows = self.log.read_bytes().splitlines(keepends=True)
        self.log.write_bytes(b"".join([header, two, one, *rows]))
        self.make("log.jsonl")

    def trials_of_another_temperature(self):
        self.begin()
        self.tie_again("log.jsonl", lambda row: {**row, "metadata": {**row["metadata"], "temperature": [1.0, 1.0, 0.2][row["trial"]]}})
        self.make("log.jsonl")

    def the_report_after_it_was_signed(self):
        self.begin()
        self.sign()
        self.report.write_text(self.report.read_text() + " ")
        return "log.jsonl", "--signers", "allowed"

    def the_version_of_the_formulas(self):
        self.begin()
        self.change("report.json", lambda made: made.update(report_version="1"))

    def test_each_row_of_the_table_of_the_readme_is_what_is_said(self):
        section = (HERE / "README.md").read_text(encoding="utf-8").partition("## A report that anyone can check")[2]
        rows = re.findall(r"^\| `([A-Z_]+)` \| (.+?) \| `(.+)` \|$", section.partition("\n## ")[0], re.MULTILINE)
        self.assertEqual({kind for kind, _, _ in rows}, set(harness.FINDINGS))
        for kind, changed, said in rows:
            if kind == "UNSIGNED" and not self.KEYGEN:
                continue
            with self.subTest(changed=changed):
                for path in self.folder.iterdir():
                    path.unlink()
                words = getattr(self, re.sub(r"\W+", "_", changed.lower()))() or "log.jsonl"
                lines = self.verified(*([words] if isinstance(words, str) else words))
                self.assertEqual({line.partition(" ")[0] for line in lines} - {"beside", "HASH_MISMATCH"}, {kind} - {"HASH_MISMATCH"})
                pattern = ".*".join(map(re.escape, f"{kind}  {said}".split("…")))
                self.assertTrue(any(re.fullmatch(pattern, line) for line in lines), lines)

    def test_a_report_matches_the_files_that_it_was_made_of_with_the_options_that_it_had(self):
        for words in ((), ("--require", "any", "--min", "pass@1=0.5", "--min", "pass^2=0.1"), ("--price-in", "1.5"),
                      ("--allow-incomplete", "0"), ("--no-worse-than", self.RECORDED, "--margin", "0.5")):
            with self.subTest(words=words):
                self.make(self.RECORDED, *words)
                self.assertEqual(self.verified(self.RECORDED, *[self.RECORDED] * ("--margin" in words)), ["MATCH"])
        self.make(self.RECORDED, self.RECORDED)
        self.assertEqual(self.verified(self.RECORDED, self.RECORDED), ["MATCH"])
        self.assertEqual(self.verified(self.RECORDED), [
            "MALFORMED  report.json is not made of 1 file: give all of its own"])

    def test_the_files_of_a_report_may_be_given_in_any_order(self):
        parts = [f"log-{part}-of-3.jsonl" for part in (1, 2, 3)]
        for part, name in enumerate(parts, start=1):
            self.assertEqual(called(bench, "--trials", 3, "--shard", f"{part}/3", "--log", name)[0], 0)
        self.make(*parts, self.RECORDED, "--no-worse-than", self.RECORDED)
        given = parts[2], self.RECORDED, parts[1], self.RECORDED, parts[0]
        self.assertEqual(self.verified(*given), ["MATCH"])
        self.write(parts[1], Path(parts[1]).read_text(encoding="utf-8").rstrip())
        self.assertEqual([line.partition(":")[0] for line in self.verified(*given)], ["HASH_MISMATCH  sources[1].sha256"])

    def test_every_value_of_a_report_counts(self):
        self.begin("--min", "pass@1=0.5")
        made = harness.read_json("report.json")

        def leaves(value, path=()):
            if isinstance(value, (dict, list)) and value:
                for key in (value if isinstance(value, dict) else range(len(value))):
                    yield from leaves(value[key], (*path, key))
            else:
                yield path
        whole = json.dumps(made)
        for path in leaves(made):
            inner = changed = json.loads(whole)
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = 77
            self.assertTrue(harness.findings(changed, made), path)
        del changed["systems"][0]["per_case"]["late-order"]
        self.assertIn("MISSING_TRIAL", dict(harness.findings(changed, made)))
        self.assertEqual(harness.findings({"gates": [1, True], "x.y": 1}, {"gates": [1.0, 1]}), [
            ("FABRICATED_AGGREGATE", "gates[0]: claimed 1, rebuilt 1.0"), ("FABRICATED_AGGREGATE", "gates[1]: claimed true, rebuilt 1"),
            ("FABRICATED_AGGREGATE", '["x.y"]: claimed 1, rebuilt nothing')])

    def test_of_many_findings_of_a_kind_the_first_five_are_told(self):
        found = [("MALFORMED", f"line {number}") for number in range(2, 9)]
        self.assertEqual(harness.told_findings(found), [f"MALFORMED  line {number}" for number in range(2, 7)] + [
            "MALFORMED  and 2 more, 7 in all"])

    def test_figures_of_other_trials_are_no_fabrication(self):
        self.the_last_row_of_the_log_cut_off()
        lines = self.verified()
        self.assertNotIn("FABRICATED", " ".join(lines))
        self.assertRegex(lines[-1], r"^beside these \d+ figures differ: they are of other trials$")

    def test_a_hostile_claim_is_one_line_and_runs_nothing(self):
        self.begin()
        made = self.report.read_text()
        for text, said in (("[1]", "report.json: this is neither a report nor a run record as JSON"), ("{", "report.json: this is neither"),
                           (made.replace('"options": {}', '"options": {"out": "x.json"}'), "options: they are not those of a report"),
                           (made.replace('"options": {}', '"options": {"require": "--help"}'), "options: error: argument --require"),
                           (made.replace('"options": {}', '"options": {"min": ["pass@0=2"]}'), "options: error: argument --min"),
                           (made.replace('"sources": [', '"sources": [7,'), "is not made of 1 file")):
            self.report.write_text(text)
            line, = self.verified()
            self.assertIn(said, line)
            self.assertTrue(line.startswith("MALFORMED  "), line)
        self.assertEqual(sorted(os.listdir()), ["log.jsonl", "report.json"])

    def test_what_is_of_no_type_in_a_run_record_is_a_finding(self):
        whole = self.begin_run()
        self.make("run.json")
        for change, kind in ((lambda made: made["results"][1].update(case_id=["x"]), "MISSING_TRIAL"),
                             (lambda made: made["results"][1].update(trial={}), "MISSING_TRIAL"),
                             (lambda made: made["results"].insert(0, "\ud800"), "MALFORMED"),
                             (lambda made: [row.update({"class": "x"}) for row in made["results"]],
                              'FABRICATED_VERDICT  run.json: results[0].class: claimed "x", rebuilt'),
                             (lambda made: [row.update(expects_rejection=True) for row in made["results"]],
                              "FABRICATED_VERDICT  run.json: results[0].expects_rejection: claimed true, rebuilt nothing"),
                             (lambda made: [row.update(output={}) for row in made["results"] if row["output"] is None],
                              "HASH_MISMATCH  run.json: results["),
                             (lambda made: made["proof"]["sha256"].insert(1, "\ud800") or made["proof"]["sha256"].pop(), "HASH_MISMATCH")):
            harness.write("run.json", whole)
            self.change("run.json", change)
            lines = [line for line in self.verified("run.json") if "sources[0]" not in line]
            self.assertTrue(lines[0].startswith(kind), lines)

    def test_a_run_record_is_checked_against_its_own_log(self):
        record = self.begin_run()
        os.replace("run.json", "report.json")
        self.assertEqual(self.verified(), ["MATCH"])
        self.change("report.json", lambda made: (made["results"][0].update(verdict="fail"), made["results"][1]["metadata"].update(seed=5),
                                                 made["results"].pop(), made["manifest"].update(trials=4)))
        self.assertEqual([line.partition(": ")[0] for line in self.verified()], [
            "PLAN_DIVERGED  manifest.trials", f"MISSING_TRIAL  results[{len(record['results']) - 1}]",
            "HASH_MISMATCH  results[1].metadata.seed", "FABRICATED_VERDICT  results[0].verdict"])

    def test_a_run_record_matches_and_names_the_trials_that_it_lacks(self):
        record = self.begin_run()
        self.make("run.json")
        self.assertEqual(self.verified("run.json"), ["MATCH"])
        del record["results"][4]
        harness.write("run.json", record)
        lines = self.verified("run.json")
        self.assertEqual(lines, ["MISSING_TRIAL  run.json: results: trial 1 of case stuck-tracking is not there"])

    def test_a_trial_of_another_digest_has_diverged_from_the_plan(self):
        rows = [("a" * 12, None, None, None), ("b" * 12, None, None, None)]
        made = harness.compact(run_record({"a": "++"}))
        made.manifest["system"]["model"] = f"m:1@{'a' * 12}"
        names = list(harness.RUNTIMES)
        made.setups = Counter({tuple(dict(digest=digest).get(name) for name in names): 1 for digest, *_ in rows})
        self.assertEqual(harness.plan_findings(made), [
            ("PLAN_DIVERGED", f'metadata.digest is "{"b" * 12}" in 1 of 2 trials, not "{"a" * 12}"')])

    @unittest.skipUnless(KEYGEN, "ssh-keygen is not here")
    def test_a_signature_of_an_allowed_signer_is_told(self):
        self.begin()
        self.assertEqual(self.sign()[0], 0)
        lines = self.verified("log.jsonl", "--signers", "allowed")
        self.assertEqual((lines[0], "alice@example.com" in lines[1]), ("MATCH", True))
        self.assertEqual(self.verified("log.jsonl", "--signers", "allowed", "--signer", "alice@example.com")[0], "MATCH")
        for words in (("allowed", "--signer", "bob@example.com"), ("nobody",)):
            self.assertRegex(self.verified("log.jsonl", "--signers", *words)[0], "^UNSIGNED  ")
        self.write("allowed", "mallory@example.com " + Path("alice.pub").read_text().replace("AAAAI", "AAAAJ"))
        self.assertRegex(self.verified("log.jsonl", "--signers", "allowed")[0], "^UNSIGNED  ")
        os.remove("report.json.sig")
        self.assertEqual(self.verified("log.jsonl", "--signers", "allowed"), ["UNSIGNED  report.json.sig: there is no such file"])

    @unittest.skipUnless(KEYGEN, "ssh-keygen is not here")
    def test_a_key_that_cannot_sign_leaves_no_signature_not_even_an_old_one(self):
        self.begin()
        self.write("report.json.sig", "old")
        status, _, err = self.sign(passphrase="secret")
        self.assertEqual((status, os.path.exists("report.json.sig")), (1, False))
        self.assertRegex(err, "^error: report.json is not signed: ssh-keygen made no signature with --sign alice: .*passphrase")
        self.assertEqual(called(report, "log.jsonl", "--out", "report.json", "--sign", "nokey")[0], 1)
        self.assertFalse(os.path.exists("report.json.sig"))

    @unittest.skipUnless(KEYGEN and os.name == "posix", "ssh-keygen is not here, or looks at no mode")
    def test_a_key_that_others_can_read_signs_nothing(self):
        self.begin()
        self.assertEqual(self.sign()[0], 0)
        os.chmod("alice", 0o644)
        status, _, err = called(report, "log.jsonl", "--out", "report.json", "--sign", "alice")
        self.assertEqual((status, os.path.exists("report.json.sig")), (1, False))
        self.assertIn("Permissions 0644 for 'alice' are too open", err)

    def test_what_the_user_has_to_name_is_no_fault_of_the_claim(self):
        self.begin_run()
        self.make("run.json")
        self.write("other.json", json.dumps({"name": "other", "cases": [case()]}))
        status, out, err = called(report, "--verify", "report.json", "run.json", "--cases", "other.json")
        self.assertEqual((status, out, "give its own with --cases" in err), (2, "", True))

    @unittest.skipUnless(os.name == "posix", "the stand-in is a script of the shell")
    def test_whatever_ssh_keygen_does_there_is_a_good_signature_or_none(self):
        self.begin()
        (self.folder / "bin").mkdir()
        fake = self.write("bin/ssh-keygen", "")
        fake.chmod(0o755)
        for body, said in (("exit 0", "it says nothing"), ("echo agent refused operation >&2; exit 255", "agent refused operation"),
                           ('[ "$2" = sign ] && for f; do :; done && echo nonsense > "$f.sig"; exit 0', "ssh-keygen made no signature"),
                           ('[ "$2" = sign ] || { echo Signature is wrong; exit 1; }; for f; do :; done; '
                            f"echo '{harness.SIGNATURE}' > \"$f.sig\"", "Signature is wrong"), ("exec sleep 60", "did not end within 0.2 s")):
            with self.subTest(said=said):
                fake.write_text(f"#!/bin/sh\n{body}\n")
                with mock.patch.dict(os.environ, PATH=f"{fake.parent}{os.pathsep}{os.environ['PATH']}"), mock.patch.object(
                        harness, "SIGN_S", 0.2 if "sleep" in body else 60):
                    status, _, err = called(report, "log.jsonl", "--out", "report.json", "--sign", "key")
                self.assertEqual((status, os.path.exists("report.json.sig"), err.count("\n")), (1, False, 1))
                self.assertIn(said, err)
        with mock.patch.dict(os.environ, PATH=str(self.folder)):
            self.assertIn("error: ssh-keygen cannot be started", called(report, "log.jsonl", "--out", "report.json", "--sign", "key")[2])
            self.write("report.json.sig", "x")
            self.assertEqual(called(report, "--verify", "report.json", "log.jsonl", "--signers", "report.json")[:2], (1, ""))

    def test_a_redacted_report_tells_no_input_output_or_reason_in_any_format_and_still_verifies(self):
        secrets = ["SECRETINPUT", "SECRETOUTPUT", "SECRETREPLY", "SECRETERROR", "SECRETTHOUGHT", "SECRETEXPECT", "SECRETTOKEN"]

        def answer(case, trial):
            error = TimeoutError("SECRETERROR")
            error.metadata = {"reply": "SECRETREPLY", "eval_count": 3}
            sure = {"tokens": ["SECRET", "TOKEN" * (trial % 2)], "logprobs": [-0.1, -0.2]}
            if case["id"] == "one":
                return [Answer(dict(GOOD), {"logprobs": {**sure, "tokens": ["SECRETTOKEN", str(trial)]}}),
                        {"category": "SECRETOUTPUT", "needs_human": False}, error][trial % 3]
            return Answer({**GOOD, "x": "SECRETOUTPUT"}, {"thinking": "SECRETTHOUGHT", "reply": "SECRETREPLY", "seed": 1000, "logprobs": sure})
        self.run_small(Scripted(answer), cases=(case("one", input="SECRETINPUT"), case("two", failure_criteria=[
            {"field": "category", "equals": "other", "why": "SECRETEXPECT"}])), trials=6, task=triage_task, told={"files": {}})
        outs = [f"report{suffix}" for suffix in report.FORMATS]
        status, text, _ = called(report, "log.jsonl", "--redact", "--require", "all", *(word for out in outs for word in ("--out", out)))
        self.assertEqual(status, 1)
        for name, told in (("stdout", text), *((out, Path(out).read_text(encoding="utf-8")) for out in outs)):
            with self.subTest(name=name):
                self.assertEqual([secret for secret in secrets if secret in told], [])
        self.assertIn("2 incomplete", text)
        self.assertEqual(self.verified(), ["MATCH"])
        redacted = harness.read_json("report.json")["systems"]
        self.make("log.jsonl")
        whole = harness.read_json("report.json")["systems"]
        self.assertIn("sureness", whole[0])
        self.assertEqual(redacted, [{key: value for key, value in whole[0].items() if key != "sureness"}])

    def test_a_check_that_raised_is_named_without_its_words(self):
        for reason, told in (("CheckError: check outcome raised KeyError: 'secret'", "CheckError: check outcome raised KeyError"),
                             ("CheckError: check outcome returned 'secret', not a reason", "CheckError: check outcome returned"),
                             ("BadReply: secret: more", "BadReply")):
            self.assertEqual(harness.untold(("incomplete", None, reason)), ("incomplete", None, told))
        self.assertEqual(harness.untold(harness.NOT_RUN), harness.NOT_RUN)

    def test_options_that_do_not_go_together_are_refused(self):
        self.write("x.jsonl", "")
        for words, said in ((("--verify", "r.json"), "needs the report and the logs"), (("x.jsonl", "--signers", "a"), "needs --verify"),
                            (("x.jsonl", "--sign", "k"), "--sign needs --out"), (("x.jsonl", "--redact", "--failures"), "leave one of them out"), (("x.jsonl", "--signer", "k"), "needs --signers"),
                            (("x.jsonl", "--verify", "r.json", "--require", "all"), "leave --require out"),
                            (("x.jsonl", "--verify", "r.json", "--signers", ""), "--signers is empty"),
                            (("x.jsonl", "--verify", "r.json", "--signers", "a", "--signer", ""), "--signer is empty"),
                            (("x.jsonl", "--out", "r.json", "--sign", ""), "--sign is empty")):
            status, _, err = called(report, *words)
            self.assertEqual((status, said in err), (2, True), err)


class PoorFileSystems(InFolder):
    """Those without locks or without sync."""

    def setUp(self):
        super().setUp()
        self.lock_file, self.warnings = self.folder / "log.jsonl.lock", []

    def run_without(self, what, number=errno.ENOSYS, system=None, **options):
        with mock.patch(what, side_effect=OSError(number, os.strerror(number))):
            return self.run_small(system, warn=self.warnings.append, **options)

    def test_a_file_beside_the_log_stands_in_for_a_lock(self):
        for number in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL):
            self.log.unlink(missing_ok=True)
            held = []
            system = Scripted(lambda case, trial: held.append(self.lock_file.read_text().split()[:2]))
            self.assertEqual(self.run_without("bench.lock", number, system)["ran"], 6)
            self.assertEqual(held, [[bench.platform.node(), str(os.getpid())]] * 6)
            self.assertEqual(self.warnings.pop(), f"{self.log}: its file system has no locks ({os.strerror(number)}): log.jsonl.lock "
                                                  "beside it keeps a second bench.py away")
            self.assertEqual((self.warnings, self.lock_file.exists()), ([], False))

    def test_a_second_writer_is_refused_by_it(self):
        def second(case, trial):
            self.assert_refused(f"another bench.py (process {os.getpid()}) is writing this log", bench.LogFile, self.log)
            return dict(GOOD)
        self.assertEqual(self.run_without("bench.lock", system=Scripted(second))["ran"], 6)

    @unittest.skipIf(os.name == "nt", "Windows has no harmless way to ask whether a process runs")
    def test_one_left_behind_by_a_dead_process_is_taken_over_and_any_other_is_named(self):
        dead = subprocess.Popen([sys.executable, "-S", "-c", ""])
        dead.wait()
        self.lock_file.write_text(f"{bench.platform.node()} {dead.pid} abc\n")
        self.assertEqual(self.run_without("bench.lock")["ran"], 6)
        for text, told in (("elsewhere 12 abc\n", 'the log is locked by "elsewhere 12 abc" (host, process)'), ("", 'the log is locked by ""')):
            self.lock_file.write_text(text)
            self.assert_refused(f"{self.lock_file}: {told}", self.run_without, "bench.lock", trials=4)
            self.assert_refused(f"remove that file: rm {self.lock_file}", self.run_without, "bench.lock")
            self.assertEqual(self.lock_file.read_text(), text)

    def test_one_that_goes_away_under_the_run_stops_it(self):
        for change in (self.lock_file.unlink, lambda: self.lock_file.write_text("other 1 x")):
            self.assert_refused("removed or taken over under the run", self.run_without, "bench.lock",
                                system=Scripted(lambda case, trial: change()))
            self.lock_file.unlink(missing_ok=True)      # that of another is left

    def test_no_lock_asks_for_none(self):
        self.assertEqual(self.run_without("bench.lock", errno.EIO, locked=False)["ran"], 6)
        self.assertEqual((self.warnings, self.lock_file.exists()), ([], False))
        self.assert_refused("the log cannot be opened: Input/output error", self.run_without, "bench.lock", errno.EIO)

    def test_a_run_without_sync_goes_on_and_says_so_once_and_in_its_header(self):
        told = f"{self.log}: its file system syncs nothing to the disk: a power cut may take trials with it"
        self.assertEqual(self.run_without("os.fsync", trials=2)["ran"], 4)
        header = self.log.read_bytes().splitlines()[0]
        self.assertEqual((self.warnings, json.loads(header)["sync"]), ([told], None))
        self.log.write_bytes(header + b"\n")
        self.assertEqual(self.run_without("os.fsync", trials=2)["ran"], 4)
        self.assertEqual((self.warnings, self.log.read_bytes().splitlines()[0]), ([told] * 2, header))

    def test_a_report_is_written_without_sync_too(self):
        with mock.patch("os.fsync", side_effect=OSError(errno.EINVAL, "no")):
            harness.write(self.folder / "x.json", {"a": 1})
        self.assertEqual(harness.read_json(self.folder / "x.json"), {"a": 1})


class GradingWhileRunning(InFolder):
    def graded(self, check, *arguments, **options):
        """(what progress was told of each trial, warnings, what progress knows in the end) of a small run."""
        task, told, warnings = SimpleNamespace(NAME="small", CHECKS=(("check", check),)), [], []
        progress = bench.Progress("small", io.StringIO())
        with mock.patch.object(bench.Progress, "__call__", lambda self, counts, elapsed_s, row, verdict: told.append(
                (row["case_id"], row["trial"], counts["ran"], verdict))):
            self.run_small(*arguments, grade=lambda case, response: harness.grade(task, case, response),
                           progress=progress, warn=warnings.append, **options)
        return told, warnings, progress.verdicts

    def test_each_trial_is_graded_when_it_ends(self):
        told, _, verdicts = self.graded(lambda case, output: None if case["id"] == "one" else "no", trials=2)
        self.assertEqual(told, [("one", 0, 1, "pass"), ("two", 0, 2, "fail"), ("one", 1, 3, "pass"), ("two", 1, 4, "fail")])
        self.assertEqual(verdicts, {"one": ["pass", "pass"], "two": ["fail", "fail"]})

    def test_what_was_logged_before_is_graded_too_and_what_never_ran_is_not(self):
        self.run_small(budget_s=1, clock=steps(0, 0, 0, 0, 0, 0, 0, 2))
        logged = len(self.rows())
        with self.assertRaises(SystemDown), mock.patch.object(bench.Progress, "begin", autospec=True) as begun:
            self.graded(lambda case, output: None, Scripted(lambda case, trial: SystemDown("gone")))
        verdicts = begun.call_args[0][3]
        self.assertEqual([verdict for trials in zip(*verdicts.values()) for verdict in trials],
                         ["pass"] * logged + ["not run"] * (6 - logged))

    def test_rows_taken_over_are_graded(self):
        old = self.folder / "old.jsonl"
        bench.run_bench(Scripted(), case_set("one", "two"), ["development"], 2, old)
        told, _, verdicts = self.graded(lambda case, output: None, sources=[old])
        self.assertEqual((len(told), verdicts), (2, {"one": ["pass"] * 3, "two": ["pass"] * 3}))

    def test_a_check_that_raises_is_told_once_at_the_first_trial_that_it_hits(self):
        told, warnings, verdicts = self.graded(lambda case, output: None if case["id"] == "one" else 1 / 0)
        self.assertEqual(verdicts, {"one": ["pass"] * 3, "two": ["incomplete"] * 3})
        self.assertEqual(len(warnings), 1)
        self.assertRegex(warnings[0], "^case two, trial 0: CheckError: check check raised ZeroDivisionError.*; mend the check, the trials are kept$")
        self.assertEqual(len(self.rows()), 6)


class WorthlessRuns(InFolder):
    def run_ending_as(self, names, advice=lambda name: f"mend {name}", **options):
        """(warnings, what progress knows) of a run whose model calls end as errors of these names, None for an output."""
        def answer(case, trial):
            error = names[trial] and type(names[trial], (ValueError,), {})("no")
            return error or dict(GOOD)
        warnings, progress = [], bench.Progress("small", io.StringIO())
        try:
            self.run_small(Scripted(answer, advice=advice), cases=("one",), trials=len(names), progress=progress,
                           warn=warnings.append, **options)
        finally:
            self.warnings = warnings
        return warnings, progress

    def test_five_calls_that_end_alike_are_told_once_with_the_setting_to_change(self):
        warnings, progress = self.run_ending_as(["TruncatedReply"] * 8)
        self.assertEqual(warnings, ["none of 5 model calls could be graded, all ended as TruncatedReply: mend TruncatedReply; "
                                    "the run goes on (--stop-if-hopeless would end it)"])
        self.assertEqual(progress.calls, {"TruncatedReply": 8})
        self.assertEqual(len(self.rows()), 8)

    def test_a_graded_call_is_hope_and_four_are_too_few(self):
        for names in (["Cut"] * 4, ["Cut"] * 4 + [None] + ["Cut"] * 9, ["A", "B"] * 4):
            self.log.unlink(missing_ok=True)
            self.assertEqual(self.run_ending_as(names)[0], [])

    def test_other_ends_between_do_not_hide_it_and_a_cause_without_advice_is_told_too(self):
        warnings, _ = self.run_ending_as(["B", "A", "A", "A", "A", "A", "A"], advice=lambda name: None)
        self.assertEqual(warnings, ["none of 6 model calls could be graded, 5 ended as A; the run goes on (--stop-if-hopeless would end it)"])

    def test_stop_if_hopeless_ends_the_run_and_the_log_resumes(self):
        with self.assertRaises(bench.Hopeless) as caught:
            self.run_ending_as(["Cut"] * 9, stop_if_hopeless=True)
        self.assertEqual(str(caught.exception), "none of 5 model calls could be graded, all ended as Cut: mend Cut; stopped by --stop-if-hopeless")
        self.assertEqual(bench.why_stopped(caught.exception, caught.exception.counts), "stopped as hopeless; the same command resumes")
        self.assertEqual((caught.exception.counts["ran"], len(self.rows()), self.warnings), (5, 5, []))
        self.assertEqual(self.run_ending_as([None] * 9)[1].calls, {None: 4})

    def test_the_command_says_it_on_stdout_too(self):
        self.write("cut.py", SLOW_SYSTEM + "class Cut(Slow):\n    def respond(self, case, trial): raise ValueError('cut')\n"
                                           "    def advice(self, name): return 'raise it'\ncut = Cut(0)\n")
        for words, status, calls in (((), 0, 18), (("--stop-if-hopeless",), 1, 5)):
            done = script("bench.py", "--system", "cut:cut", "--trials", "2", "--log", f"{status}.jsonl", *words, cwd=self.folder)
            self.assertEqual(done.returncode, status)
            self.assertIn(f"\nnone of {calls} model calls could be graded, all ended as ValueError: raise it\n", done.stdout)
            self.assertRegex(done.stderr, "^(warning|error): none of 5 model calls could be graded.*\n$")

    def test_what_a_system_warns_of_is_told_once_after_its_check(self):
        system, warnings = Scripted(check_model=lambda: system.warnings.append("it only thinks"), warnings=[]), []
        down = iter([SystemDown("away", may_return=True)])
        system.answer = lambda case, trial: next(down, dict(GOOD))
        with mock.patch.object(bench, "WAIT_PAUSE_S", 0.01):
            self.run_small(system, wait_s=30, warn=warnings.append)
        self.assertEqual((warnings, len(system.warnings)), (["it only thinks"], 2))

    def test_a_system_that_is_another_at_the_end_is_an_error_and_nothing_logged_is_lost(self):
        def confirm():
            raise SystemDown("it was aaaaaaaaaaaa, the server now has bbbbbbbbbbbb")
        with self.assertRaises(SystemDown) as caught:
            self.run_small(Scripted(lambda case, trial: Rejection("no"), confirm=confirm))
        self.assertEqual(str(caught.exception), "it was aaaaaaaaaaaa, the server now has bbbbbbbbbbbb")
        self.assertEqual((caught.exception.counts["ran"], len(self.rows())), (6, 6))
        self.assertEqual(self.run_small(Scripted(confirm=confirm))["ran"], 0)

    def test_a_system_that_is_away_at_the_end_is_a_warning(self):
        down, warnings = SystemDown("gone", may_return=True), []

        def confirm():
            raise down
        self.run_small(Scripted(lambda case, trial: Rejection("no"), confirm=confirm), warn=warnings.append)
        self.assertEqual(warnings, ["that the system is still the same could not be seen at the end: gone"])


class TakingOver(InFolder):
    def old(self, name, trials=2, system=None, cases=("one", "two")):
        path = self.folder / name
        bench.run_bench(system or Scripted(), case_set(*cases), ["development"], trials, path)
        return path

    def test_a_finished_log_grows_without_repeating_a_trial(self):
        old = self.old("old.jsonl")
        before = old.read_bytes()
        system = Scripted()
        counts = self.run_small(system, sources=[old])
        self.assertEqual((counts["already_logged"], counts["ran"]), (4, 2))
        self.assertEqual(system.seen, [("one", 2), ("two", 2)])
        header, _ = bench.read_log(self.log)
        self.assertEqual(header["from"], [{"sha256": harness.hashlib.sha256(before).hexdigest()}])
        self.assertEqual((header["taken_over"], header["run_again"]), (4, 0))
        self.assertEqual(old.read_bytes(), before)
        self.assertEqual(self.run_small(sources=[old])["already_logged"], 6)
        self.assertEqual(self.run_small()["already_logged"], 6)

    def test_the_good_rows_of_a_damaged_log_are_rescued(self):
        old = self.old("old.jsonl")
        lines = old.read_bytes().splitlines(keepends=True)
        old.write_bytes(b"".join([*lines[:2], b"garbage\n", *lines[3:]]))
        warnings = []
        counts = self.run_small(sources=[old], trials=2, warn=warnings.append)
        self.assertEqual((counts["already_logged"], counts["ran"]), (3, 1))
        self.assertEqual(len(warnings), 1)
        self.assertIn("line 3 is left out: not JSON", warnings[0])

    def test_only_cases_with_the_same_text_are_taken_over(self):
        old = self.old("old.jsonl")
        counts = self.run_small(cases=(case("one", expect={"category": "account"}), case("two", input="new"), "three"), trials=2, sources=[old])
        self.assertEqual((counts["already_logged"], counts["ran"]), (2, 4))

    def test_unanswered_trials_run_again_only_on_purpose_and_are_counted(self):
        replied = ValueError("no JSON")
        replied.metadata = {"reply": "hm"}
        results = {("one", 0): ConnectionError("broken"), ("two", 0): replied, ("one", 1): Rejection("no")}
        old = self.old("old.jsonl", system=Scripted(lambda case, trial: results.get((case["id"], trial), dict(GOOD))))
        self.assertEqual(self.run_small(trials=2, sources=[old])["ran"], 0)
        self.log.unlink()
        system = Scripted()
        self.assertEqual(self.run_small(system, trials=2, sources=[old], redo_unanswered=True)["ran"], 1)
        self.assertEqual(system.seen, [("one", 0)])
        self.assertEqual(bench.read_log(self.log)[0]["run_again"], 1)
        recording = bench.to_recording(self.log, case_set("one", "two"))
        self.assertEqual(recording["provenance"]["run_again"], 1)
        longer = self.folder / "longer.jsonl"
        bench.run_bench(Scripted(), case_set("one", "two"), ["development"], 3, longer, sources=[self.log])
        self.assertEqual(bench.read_log(longer)[0]["run_again"], 1)

    def test_several_logs_are_merged_and_contradictions_refused(self):
        old, other = self.old("old.jsonl", trials=1), self.old("other.jsonl", trials=2)
        self.assertEqual(self.run_small(sources=[old, other])["already_logged"], 4)
        self.log.unlink()
        liar = self.old("liar.jsonl", system=Scripted(lambda case, trial: "other"))
        self.assert_refused('trial 0 of case "one" has one result in', self.run_small, sources=[old, liar])
        self.assertFalse(self.log.exists())

    def test_in_which_order_logs_are_merged_changes_nothing(self):
        logs = []
        for number in (1, 2, 3):
            facts = {} if number == 1 else {"server_facts": lambda: {"context_length": number}}
            results = {("two", 0): ConnectionError("x")} if number == 2 else {}
            logs.append(self.old(f"old{number}.jsonl", number, Scripted(lambda case, trial: results.get((case["id"], trial), dict(GOOD)), **facts)))
        made = []
        for order in itertools.permutations(logs):
            self.log.unlink(missing_ok=True)
            self.run_small(sources=order, redo_unanswered=True, budget_s=0)
            header, rows = bench.read_log(self.log)
            made.append((header["from"], header["run_again"], header["environment"]["server"], rows))
        self.assertEqual(made, [made[0]] * 6)
        self.assertEqual(self.keys(), [(case_id, trial) for trial in range(3) for case_id in ("one", "two")])
        for order in itertools.permutations(logs):      # and a merged log goes on whatever the order
            self.assertEqual(self.run_small(sources=order, redo_unanswered=True)["already_logged"], 6)

    def test_a_merge_that_was_begun_in_another_order_of_its_logs_goes_on(self):
        logs = [self.old("old.jsonl", 1), self.old("older.jsonl", 2)]
        self.run_small(sources=logs)
        header, rows = self.log.read_bytes().split(b"\n", 1)
        header = json.loads(header)
        header["from"].reverse()
        self.log.write_bytes(json.dumps(header).encode() + b"\n" + rows)
        self.assertEqual(self.run_small(sources=logs)["already_logged"], 6)

    def test_a_trial_twice_in_one_damaged_log_counts_once_or_is_refused(self):
        old = self.old("old.jsonl", trials=1)
        lines = old.read_bytes().splitlines(keepends=True)
        old.write_bytes(b"".join([*lines, lines[1]]))
        self.assertEqual(self.run_small(trials=1, sources=[old])["already_logged"], 2)
        self.log.unlink()
        old.write_bytes(b"".join([*lines, lines[1].replace(b"billing", b"account")]))
        self.assert_refused("one result", self.run_small, trials=1, sources=[old])

    def test_results_that_only_look_equal_are_different(self):
        old = self.old("old.jsonl", system=Scripted(lambda case, trial: {"needs_human": True}), trials=1)
        for value in (1, 1.0):
            other = self.old(f"other{value}.jsonl", system=Scripted(lambda case, trial: {"needs_human": value}), trials=1)
            self.assert_refused("one result", self.run_small, sources=[old, other])

    def test_one_source_given_twice_counts_once(self):
        old = self.old("old.jsonl", system=Scripted(lambda case, trial: ConnectionError("x") if trial else dict(GOOD)))
        self.run_small(trials=2, sources=[old, old], redo_unanswered=True)
        self.assertEqual(bench.read_log(self.log)[0]["run_again"], 2)

    def test_a_take_over_goes_on_as_it_was_begun(self):
        old = self.old("old.jsonl", system=Scripted(lambda case, trial: ConnectionError("x") if trial else dict(GOOD)))
        self.run_small(trials=2, sources=[old])
        self.assert_refused("this --redo-unanswered", self.run_small, trials=2, sources=[old], redo_unanswered=True)

    def test_other_checks_of_a_source_are_told(self):
        old, warnings = self.folder / "old.jsonl", []
        bench.run_bench(Scripted(), case_set("one", "two"), ["development"], 1, old, task=triage_task)
        other = SimpleNamespace(NAME="other", __file__=__file__)
        self.run_small(trials=1, sources=[old], task=other, warn=warnings.append)
        self.assertEqual(warnings, [f"{old}: it began with other checks; the new log's trials are graded with today's"])

    def test_what_a_server_said_of_the_model_is_taken_over(self):
        old = self.old("old.jsonl", system=Scripted(server_facts=lambda: {"context_length": 4096}))
        self.run_small(trials=2, sources=[old])
        self.assertEqual(bench.read_log(self.log)[0]["environment"]["server"], {"context_length": 4096})

    def test_a_torn_last_line_of_a_source_is_told(self):
        old = self.old("old.jsonl")
        old.write_bytes(old.read_bytes()[:-9])
        warnings = []
        self.assertEqual(self.run_small(trials=2, sources=[old], warn=warnings.append)["already_logged"], 3)
        self.assertIn("a torn last line of", warnings[0])

    def test_another_systems_trials_are_refused(self):
        old = self.old("old.jsonl", system=Scripted(model="n"))
        self.assert_refused('system.model is "n" there, "m" now', self.run_small, sources=[old])

    def test_a_take_over_that_was_cut_short_is_finished_first(self):
        old = self.old("old.jsonl")
        self.run_small(sources=[old], budget_s=0)
        whole = self.log.read_bytes()
        header_end = whole.index(b"\n") + 1
        for cut in (header_end, header_end + 50, len(whole) - 5):
            self.log.write_bytes(whole[:cut])
            self.assert_refused("cut short", self.run_small)
            counts = self.run_small(sources=[old], budget_s=0)
            self.assertEqual((counts["already_logged"], counts["ran"]), (4, 0))
            self.assertEqual(self.log.read_bytes(), whole)

    def test_a_log_of_other_sources_is_refused(self):
        old, other = self.old("old.jsonl"), self.old("other.jsonl", trials=1)
        self.run_small(sources=[old])
        self.assert_refused("not begun with these --from logs", self.run_small, sources=[other])


# Real processes

SLOW_SYSTEM = '''
import random, time
from harness import Answer
class Slow:
    name, version, mode, model, prompt, tools = "slow", "1", "live", "m", "", []
    def __init__(self, pause_s): self.pause_s = pause_s
    def seed_for(self, trial): return 1000 + trial
    def respond(self, case, trial):
        time.sleep(self.pause_s)
        text = f"{case['id']} {trial} \\u20ac\\U0001f600\\u2028"
        return Answer({"text": text, "draw": random.Random(text).random()}, {"seed": 1000 + trial, "reply": text})
quick, slow, hanging = Slow(0), Slow(0.004), Slow(1000)
'''
LONG = 1000     # trials a case that no signal of a test comes too late for
# bench.py as a process of its own for each log of the command line, two at a time, each forked from here with all imports done.
FORKED = '''
import json, os, sys
sys.path.insert(0, sys.argv[1])
import bench, report
statuses, running = {}, set()
def end_one():
    pid, status = os.wait()
    running.remove(pid)
    statuses[pid] = os.waitstatus_to_exitcode(status)
for log in sys.argv[2:]:
    if len(running) == 2:
        end_one()
    pid = os.fork()
    if not pid:
        os.dup2(2, 1)
        os._exit(bench.main(["--system", "slow:quick", "--trials", "2", "--log", log]))
    running.add(pid)
    statuses[pid] = None
while running:
    end_one()
print(json.dumps(list(statuses.values())))
'''


class Processes(InFolder):
    def setUp(self):
        super().setUp()
        self.write("slow.py", SLOW_SYSTEM)

    def start(self, *words, system="slow:slow", trials=10, log=None, **options):
        how = {**started("bench.py", "--system", system, "--trials", trials, "--log", log or self.log, *words), **options}
        return subprocess.Popen(**how, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8",
                                stdin=subprocess.DEVNULL)

    def finish(self, process):
        """(exit status, stdout, stderr) of a process that ends by itself."""
        try:
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
        return process.returncode, out, err

    def wait_for_rows(self, process, count, log=None):
        """Return once the log has so many rows."""
        path = log or self.log
        self.wait_until(process, lambda: path.exists() and path.read_bytes().count(b"\n") > count)

    def wait_until(self, process, condition):
        """Return once the condition holds, while the process runs."""
        until = time.monotonic() + 60
        while not condition():
            if process.poll() is not None:
                self.fail(f"the process ended: {process.communicate()}")
            self.assertLess(time.monotonic(), until, "it never came")
            time.sleep(0.002)

    def outputs(self, log=None):
        return {(row["case_id"], row["trial"]): row["output"] for row in bench.read_log(log or self.log)[1]}


class Crashes(Processes):
    def campaign(self, seed, kills, trials=40):
        """Kill bench.py so often at random moments, then let it end; the outputs of the last log."""
        log, rng, known, killed = self.folder / f"killed{seed}.jsonl", random.Random(seed), set(), 0
        while killed < kills:
            process = self.start(trials=trials, log=log, *(("--workers", "3") if rng.random() < 0.5 else ()))
            more = rng.choice((0, 1, 5, 12))     # rows to wait for; then any moment of a trial, or of the start
            before = log.read_bytes().count(b"\n") if log.exists() else 0
            while more and process.poll() is None and (not log.exists() or log.read_bytes().count(b"\n") < before + more):
                time.sleep(0.001)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.random() * (0.01 if more else 0.1))
            killed += process.poll() is None
            process.kill()
            process.communicate()
            if log.exists() and log.stat().st_size > 700:
                rows = [(row["case_id"], row["trial"]) for row in bench.read_log(log)[1]]
                self.assertEqual(len(set(rows)), len(rows), "a trial was logged twice")
                self.assertLessEqual(known, set(rows), "a logged trial vanished")
                known = set(rows)
                if len(known) > 9 * trials * 0.8:       # nearly done: begin again with more killing to do
                    log.unlink()
                    known = set()
        status, out, err = self.finish(self.start(trials=trials, log=log, *("--workers", "3")))
        self.assertEqual((status, re.sub("warning: .* dropped\n", "", err)), (0, ""))
        return self.outputs(log), self.counted(log)

    def counted(self, log):
        """The report of a log without what is timed or told of the workers."""
        loaded = harness.load_cases(CASE_FILE, triage_task)
        made = report.system_report(harness.replay(bench.to_recording(log, loaded), triage_task, loaded))
        for case in made["per_case"].values():
            del case["latency_s"]
        return {key: value for key, value in made.items() if key not in ("recording_sha256", "latency_s", "costs", "runtimes", "provenance", "planning")}

    def test_thirty_kills_lose_no_trial_and_repeat_none(self):
        undisturbed = self.folder / "undisturbed.jsonl"
        self.finish(self.start("--workers", "8", trials=40, log=undisturbed))
        expected = self.outputs(undisturbed), self.counted(undisturbed)
        self.assertEqual(len(expected[0]), 360)
        with ThreadPoolExecutor(2) as pool:
            for outputs in pool.map(self.campaign, (20, 21), (15, 15)):
                self.assertEqual(outputs, expected)

    @unittest.skipUnless(hasattr(os, "fork"), "this system forks no processes")
    def test_a_hundred_torn_logs_resume_as_real_processes(self):
        self.finish(self.start("--workers", "8", trials=2))
        whole, expected = self.log.read_bytes(), self.outputs()
        rng = random.Random(7)
        last = len(b"".join(whole.splitlines(keepends=True)[-2:]))
        logs = [self.folder / f"torn{number}.jsonl" for number in range(100)]
        for log in logs:
            log.write_bytes(whole[:rng.randrange(len(whole) - last, len(whole))])
        done = subprocess.run([sys.executable, "-S", "-c", FORKED, HERE, *logs], cwd=self.folder, capture_output=True, encoding="utf-8",
                              stdin=subprocess.DEVNULL, timeout=120, check=False)
        self.assertEqual((done.returncode, json.loads(done.stdout)), (0, [0] * 100), done.stderr)
        for log in logs:
            self.assertEqual(self.outputs(log), expected)

    def test_two_starters_at_once_end_with_one_log_and_one_refusal(self):
        self.write("held.py", SLOW_SYSTEM + "import os\nclass Held(Slow):\n    def check_model(self):\n"
                                            "        while not os.path.exists('go'): time.sleep(0.002)\nheld = Held(0)\n")
        go = self.folder / "go"
        for _ in range(3):
            self.log.unlink(missing_ok=True)
            both = [self.start(trials=6, system="held:held") for _ in range(2)]
            until = time.monotonic() + 60
            while all(process.poll() is None for process in both) and time.monotonic() < until:
                time.sleep(0.002)
            go.touch()
            ends = [self.finish(process) for process in both]
            go.unlink()
            self.assertEqual(sorted(status for status, _, _ in ends), [0, 1])
            self.assertEqual(len(set(self.keys())), 54)
            refusal = next(err for status, _, err in ends if status)
            self.assertEqual(refusal, f"error: {self.log}: another bench.py is writing this log; wait for it, or give another --log\n")

    def test_what_a_writer_appends_while_a_log_is_read_is_left_for_the_next_reading(self):
        self.run_small()
        whole = self.log.read_bytes()
        place = whole.rindex(b'{"case_id"') + 9
        file = io.BytesIO(whole[:place])
        reader = bench.LogReader(file, self.log)
        at = file.tell()
        file.seek(place)
        file.write(whole[place:])
        file.seek(at)
        self.assertEqual((len(list(reader.rows())), reader.torn), (5, 9))

    def test_a_reader_of_a_running_log_sees_whole_rows(self):
        process = self.start(trials=12)
        self.wait_for_rows(process, 3)
        seen = 0
        while process.poll() is None:
            rows = self.rows()
            self.assertGreaterEqual(len(rows), seen)
            seen = len(rows)
        self.finish(process)
        self.assertEqual(len(self.rows()), 108)


@posix_signals
class Interrupts(Processes):
    def interrupted(self, number, *words, rows=4, again=False, **options):
        """The end of a process that got a signal once it had logged some rows."""
        process = self.start(*words, trials=LONG, **options)
        if rows:
            self.wait_for_rows(process, rows)
        process.send_signal(number)
        if again:
            process.send_signal(number)
        return self.finish(process)

    def test_each_signal_ends_the_run_in_good_order(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            with self.subTest(status=status):
                self.log.unlink(missing_ok=True)
                ended, out, err = self.interrupted(number)
                self.assertEqual((ended, err), (status, ""))
                logged = len(self.keys())
                self.assertIn(f"slow: planned {9 * LONG}, already logged 0, ran {logged}, not run {9 * LONG - logged} "
                              "(interrupted; the same command resumes)\n", out)

    def test_a_hanging_call_is_left_at_once(self):
        for workers in ("1", "4"):
            self.log.unlink(missing_ok=True)
            process = self.start("--workers", workers, system="slow:hanging")
            self.wait_for_rows(process, 0)
            process.send_signal(signal.SIGINT)
            status, out, err = self.finish(process)
            self.assertEqual((status, out, err), (130, "slow: planned 90, already logged 0, ran 0, not run 90 "
                                                       "(interrupted; the same command resumes)\n", ""))

    def test_a_second_interrupt_leaves_at_once_and_the_log_resumes(self):
        status, out, err = self.interrupted(signal.SIGINT, again=True)
        # Where the second one comes when all is done but the interpreter's own end, it is that which dies of it: to a shell the same.
        self.assertIn(status, (130, -signal.SIGINT))
        self.assertEqual(err, "")
        self.assertEqual(len(set(self.keys())), len(self.keys()))

    @unittest.skipUnless(Path("/proc/self/status").exists(), "needs /proc to see when the script has begun")
    def test_an_interrupt_at_any_moment_of_the_start_is_quiet(self):
        def interrupt(pause_ms):
            process = self.start(args=[sys.executable, "-S", HERE / "bench.py", "--system", "slow:hanging", "--log", f"{pause_ms}.jsonl"])
            # Before the script's first lines have run, it is the interpreter that a signal finds.
            status = Path(f"/proc/{process.pid}/status")
            while not int(re.search("SigCgt:\t(.*)", status.read_text())[1], 16) >> (signal.SIGTERM - 1) & 1:
                time.sleep(0.001)
            time.sleep(pause_ms / 1000)
            process.send_signal(signal.SIGINT)
            return pause_ms, self.finish(process)
        with ThreadPoolExecutor(3) as pool:
            for pause_ms, (ended, out, err) in pool.map(interrupt, range(0, 120, 8)):
                self.assertEqual((ended, err), (130, ""), f"after {pause_ms} ms")

    def test_two_different_signals_at_once_are_quiet(self):
        for _ in range(6):
            self.log.unlink(missing_ok=True)
            process = self.start(trials=LONG)
            self.wait_for_rows(process, 2)
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            status, out, err = self.finish(process)
            self.assertIn(status, (129, 143, -signal.SIGHUP, -signal.SIGTERM))
            self.assertEqual(err, "")

    def test_an_interrupt_keeps_its_status_when_there_is_no_log_or_no_reader(self):
        self.write("waiting.py", SLOW_SYSTEM + "import pathlib, __main__\nclass Waiting(Slow):\n"
                                               "    def check_model(self): pathlib.Path('waits').touch(); time.sleep(1000)\n"
                                               "    def close(self): time.sleep(1000)\nwaiting = Waiting(0)\n__main__.CLOSE_S = 0.1\n")
        old = self.folder / "old.jsonl"
        self.finish(self.start(trials=1, log=old))
        process = self.start("--from", old, system="waiting:waiting")
        self.wait_until(process, (self.folder / "waits").exists)
        process.stdout.close()
        process.stdout = None
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process)[0], 143)
        self.assertFalse(self.log.exists())

    @replaceable
    def test_a_stop_tells_its_own_reason_when_the_log_has_gone(self):
        process = self.start(trials=LONG)
        self.wait_for_rows(process, 2)
        self.log.unlink()
        status, out, err = self.finish(process)
        self.assertEqual((status, err), (1, f"error: {self.log}: the log was removed or replaced under the run; put it back, then run the same command\n"))

    def test_a_signal_between_two_runs_ends_the_command(self):
        early, late = bench.Signals(), bench.Signals()
        self.run_small(signals=early)
        early._handle(signal.SIGTERM, None)
        with self.assertRaises(bench.Interrupted):
            early.rearm()
        self.log.unlink()
        self.run_small(signals=late)
        late.rearm()
        with self.assertRaises(bench.Interrupted):
            late._handle(signal.SIGTERM, None)

    def test_what_the_caller_ignores_stays_ignored(self):
        process = self.start(trials=3, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.wait_for_rows(process, 1)
        process.send_signal(signal.SIGHUP)
        self.assertEqual(self.finish(process)[0], 0)

    def test_a_reader_of_stdout_that_leaves_loses_nothing(self):
        process = self.start(trials=2)
        process.stdout.close()
        process.stdout = None
        self.assertEqual(self.finish(process)[::2], (0, ""))
        self.assertEqual(len(self.keys()), 18)


class Disks(Processes):
    @unittest.skipUnless(hasattr(signal, "SIGXFSZ"), "this system has no file-size limits")
    def test_a_file_size_limit_stops_the_run_and_lifting_it_resumes(self):
        import resource
        self.finish(self.start(trials=1, log=self.folder / "one.jsonl"))
        limit = (self.folder / "one.jsonl").stat().st_size      # one trial of 10, each row shorter than all nine
        process = self.start(system="slow:quick", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        status, out, err = self.finish(process)
        self.assertEqual((status, err), (1, f"error: {self.log}: the log cannot be written: File too large; mend that, then run the "
                                            "same command: all trials logged so far are kept\n"))
        logged = len(self.keys())
        self.assertIn(f"ran {logged}, not run {90 - logged}", out)
        status, out, err = self.finish(self.start(system="slow:quick"))
        self.assertEqual((status, err), (0, ""))
        self.assertIn(f"already logged {logged}, ran {90 - logged}, not run 0", out)

    def test_a_full_disk_stops_the_run_and_room_resumes_it(self):
        mount = self.folder / "small"
        mount.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(mount)], capture_output=True, check=False) \
            if shutil.which("mount") else None
        if done is None or done.returncode:
            self.skipTest("this machine mounts no tmpfs for us")
        self.addCleanup(subprocess.run, ["umount", str(mount)], check=True)
        log = mount / "log.jsonl"
        status, out, err = self.finish(self.start(trials=30, log=log, system="slow:quick"))
        self.assertEqual((status, err.count("\n")), (1, 1))
        self.assertIn("No space left on device", err)
        logged = len(self.outputs(log))
        subprocess.run(["mount", "-o", "remount,size=10m", str(mount)], check=True)
        status, out, err = self.finish(self.start(trials=30, log=log, system="slow:quick"))
        self.assertEqual(status, 0, err)
        self.assertIn(f"already logged {logged}, ran {270 - logged}", out)


PARROT = """
import harness

class Parrot:
    name, version, mode, model, prompt, tools = "parrot", "1", "live", "", "", []

    def respond(self, case, trial):
        if not case["input"] or not case["input"].strip():
            raise harness.Rejection("message is blank" if case["input"] else "message is not text")
        return harness.Answer({"category": "billing", "needs_human": False})

parrot = Parrot()
"""


class TheCommand(InFolder):
    def bench(self, *words, **options):
        return script("bench.py", *words, cwd=self.folder, **options)

    def test_bad_use_gets_one_line_and_status_2(self):
        for words, text in ((["--trials", "0"], "argument --trials: '0' is not a whole number from 1 up"),
                            (["--budget-s", "-1"], "argument --budget-s: '-1' is not a number of seconds, 0 or more"),
                            (["--budget-s", "nan"], "argument --budget-s: 'nan' is not a number of seconds, 0 or more"),
                            (["--workers", "x"], "argument --workers: 'x' is not a whole number from 1 up"),
                            (["--trails", "3"], 'unrecognized arguments: --trails; did you mean "--trials"'),
                            (["--redo-unanswered"], "--redo-unanswered needs --from"), (["--workers", "513"], "513 is more than 512"),
                            (["--model", "x:y", "--timeout-s", "0"], "--timeout-s is 0.0"), (["--model", "x:y", "--option", "top_kk=1"], 'did you mean "top_k"'),
                            (["--option", "temperature"], "argument --option: 'temperature' is not NAME=VALUE"),
                            (["--model", "x", "--system", "a:b"], "not allowed with argument")):
            with self.subTest(words=words):
                ended, out, err = self.in_folder(bench, *words)
                self.assertEqual((ended, out, err.count("\n")), (2, "", 1))
                self.assertTrue(err.startswith("error: ") and text in err, err)

    def test_what_cannot_be_run_gets_one_line_and_status_1(self):
        for words, text in ((["--system", "model_triage:bayess"], 'did you mean "bayes"?'), (["--task", "triage"], "no task module triage.py"),
                            (["--cases", self.write("bad.json", "{")], "bad.json: not JSON"), (["--model", ""], "is no Ollama tag"),
                            (["--cases", self.folder / "none.json"], "none.json: No such file or directory"),
                            (["--log", self.folder], f"the log cannot be opened: {IS_A_FOLDER}"),
                            (["--option", "top_k=3"], "has no options to set"), (["--convert", "x.json"], "the log cannot be read"),
                            (["--from", "none.jsonl"], "none.jsonl: the log cannot be read")):
            with self.subTest(words=words):
                ended, out, err = self.in_folder(bench, *words)
                self.assertEqual((ended, out, err.count("\n")), (1, "", 1))
                self.assertTrue(err.startswith("error: ") and text in err, err)
        self.assertEqual(sorted(entry.name for entry in self.folder.iterdir()), ["bad.json"])

    def test_the_default_log_is_named_after_the_system(self):
        for name, log in (("bayes", "bayes"), ("qwen3.5:0.8b", "qwen3.5-0.8b"), ("llama3.2:3b", "llama3.2-3b"),
                          ("hf.co/a/B:Q4", "hf.co-a-b-q4-" + harness.sha256("hf.co/a/B:Q4")[:8]),
                          ("con", "con-" + harness.sha256("con")[:8]), ("../x", "x-" + harness.sha256("../x")[:8])):
            self.assertEqual(bench.default_log(name), Path("runs") / f"{log}.jsonl")
        names = ["a/b:c", "a:b/c", "a-b:c", "A/b:c", "x" * 300, "x" * 301, "...", ""]
        self.assertEqual(len({str(bench.default_log(name)).casefold() for name in names}), len(names))
        self.assertLess(max(len(bench.default_log(name).name) for name in names), 120)

    def test_a_run_ends_with_the_headline_of_its_report(self):
        done = self.bench("--trials", "2")
        told = report_on(self.folder / "runs" / "bayes.jsonl").out.split("\n\n")[1]
        self.assertIn("9 cases: ", told)
        told = told[:told.index("\n  to within ")]
        self.assertIn(f"\n\n{told}\n\nlog     ", done.stdout.replace("\r\n", "\n"))

    def test_a_plan_that_differs_in_its_trials_alone_gets_the_command_that_extends_the_log(self):
        self.assertEqual(self.bench("--trials", "1").returncode, 0)
        done = self.bench("--trials", "2", "--color", "never")
        self.assertEqual(done.returncode, 1)
        self.assertIn("its plan is 1 trials a case, not 2; --trials 1 resumes it; to go on to 2 in the same file: ", done.stderr)
        command = re.search(f"same file: {harness.PYTHON} (.*)", done.stderr)[1]
        self.assertEqual(command, f"{HERE / 'bench.py'} --color never --trials 2 --extend")
        grown = script(*command.split(), cwd=self.folder)
        self.assertIn("planned 18, already logged 9, ran 9, not run 0", grown.stdout)

    def test_a_log_of_more_trials_is_resumed_never_shortened(self):
        self.assertEqual(self.bench("--trials", "11").returncode, 0)
        for words in ((), ("--extend",), ("--trials", "10", "--extend")):
            done = self.bench(*words)
            self.assertEqual(done.stderr, "error: runs/bayes.jsonl: its plan is 11 trials a case, not 10, and no log is shortened; to resume it: "
                                          f"{harness.PYTHON} {HERE / 'bench.py'} --trials 11\n")
        self.assertEqual(self.bench("--extend", "--from", "runs/bayes.jsonl").returncode, 2)

    def test_ascii_and_other_encodings_of_the_console_get_stand_ins(self):
        for encoding in ("ascii", "cp1252"):
            done = self.bench("--trials", "2", env={"PYTHONIOENCODING": encoding})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("+ passed  - failed", done.stdout)
        self.assertTrue((self.folder / "runs" / "bayes.jsonl").read_bytes().isascii())

    def test_a_conversion_cannot_overwrite_the_log(self):
        self.bench("--trials", "1")
        before = (self.folder / "runs" / "bayes.jsonl").read_bytes()
        done = self.bench("--convert", "runs/bayes.jsonl")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1))
        self.assertEqual((self.folder / "runs" / "bayes.jsonl").read_bytes(), before)

    def test_it_runs_in_pythons_safe_mode(self):
        for name in ("bench.py", "report.py", "harness.py"):
            done = subprocess.run([sys.executable, "-P", str(HERE / name), "--help"], cwd=self.folder, capture_output=True, timeout=30, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_an_error_is_one_line_whatever_it_names(self):
        done = self.bench("--log", self.folder / "a\nb" / "c\x1b[2J", "--system", "no\nmodule:x")
        self.assertEqual((done.returncode, done.stderr.count("\n"), done.stderr.count("\x1b")), (1, 1, 0))
        done = self.bench("--log", self.write("a\nb", "hello"))
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1))

    def test_it_runs_in_an_empty_environment(self):
        needed = {"SYSTEMROOT": os.environ.get("SYSTEMROOT", "")} if os.name == "nt" else {}     # by Python itself
        done = subprocess.run([sys.executable, str(HERE / "bench.py"), "--trials", "1"], cwd=self.folder, env=needed, capture_output=True,
                              timeout=30, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_the_next_command_can_be_run_as_it_stands(self):
        shutil.copy(CASE_FILE, self.folder / "my cases.json")
        self.write("my_task.py", "from triage_task import *\nNAME = 'mine'\n")
        self.write("my_systems.py", PARROT)
        done = script("bench.py", "--trials", "1", "--task", "my_task", "--cases", "my cases.json", "--system", "my_systems:parrot", cwd=self.folder)
        command = re.search(f"^report  {harness.PYTHON} (.*)$", done.stdout, re.MULTILINE)[1]
        self.assertEqual(command, f"{HERE / 'report.py'} runs/mine-parrot.jsonl --task my_task")
        done = script(*shlex.split(command), cwd=self.folder)
        self.assertEqual(done.returncode, 0)
        self.assertIn(f"next: {harness.PYTHON} {HERE / 'report.py'} runs/mine-parrot.jsonl --task my_task --failures", done.stdout)

    def test_a_log_whose_name_looks_like_an_option_gets_commands_that_work(self):
        done = self.bench("--trials", "1", "--log=-x.jsonl")
        command = model_triage.command_words(re.search(f"^report  {harness.PYTHON} (.*)$", done.stdout, re.MULTILINE)[1])
        self.assertEqual(command[1:], ["./-x.jsonl"])
        done = script(*command, cwd=self.folder)
        self.assertEqual(done.returncode, 0)
        self.assertIn("report.py ./-x.jsonl --failures", done.stdout)
        done = self.bench("--trials", "2", "--log=-x.jsonl")
        command = model_triage.command_words(re.search(f"same file: {harness.PYTHON} (.*)", done.stderr)[1])
        self.assertEqual(command[1:], ["--log=-x.jsonl", "--trials", "2", "--extend"])
        self.assertEqual(script(*command, cwd=self.folder).returncode, 0)

    def test_a_grid_of_changed_checks_says_so(self):
        words = ("--trials", "1", "--task", "my_task", "--cases", CASE_FILE, "--system", "my_systems:parrot")
        self.write("my_systems.py", PARROT)
        self.write("my_task.py", "from triage_task import *\nNAME = 'mine'\n")
        self.bench(*words)
        self.write("my_task.py", "from triage_task import *\nNAME = 'mine'\nCHECKS = ()\n")
        done = self.bench(*words)
        self.assertEqual(done.stderr, "warning: the checks have changed since this log began: the grid shows what today's make of it\n")
        command = model_triage.command_words(re.search(f"^report  {harness.PYTHON} (.*)$", done.stdout, re.MULTILINE)[1])
        self.assertEqual(command[-1], "--regrade")
        self.assertEqual(script(*command, cwd=self.folder).returncode, 0)
        self.assertEqual(script(*command[:-1], cwd=self.folder).returncode, 1)

    def test_help_is_the_manual(self):
        for name in ("bench.py", "report.py", "harness.py"):
            done = script(name, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(f"python3 {name}", done.stdout)

    def test_piped_output_has_no_escape_codes_and_color_can_be_forced(self):
        self.assertNotIn("\x1b", self.bench("--trials", "1").stdout)
        self.assertIn("\x1b[32m", self.bench("--trials", "1", "--color", "always").stdout)
        self.assertIn("\x1b[32m", self.bench("--trials", "1", env={"FORCE_COLOR": "1", "NO_COLOR": ""}).stdout)
        self.assertNotIn("\x1b", self.bench("--trials", "1", env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout)


class TheGrid(unittest.TestCase):
    ascii_term = bench.Terminal(80, False, bench.ASCII_GLYPHS)

    def grid(self, letters, refuses=(), term=ascii_term, column=None):
        """The lines of the grid of {case_id: "+-!."}."""
        words = {"+": "pass", "-": "fail", "!": "incomplete", ".": "not run"}
        return bench.grid_lines({case: [words[letter] for letter in cells] for case, cells in letters.items()}, refuses, term, column)

    def test_a_row_a_case_and_a_cell_a_trial(self):
        grid = self.grid({"charged-twice": "++++", "product-advice": "-+!.", "late-order": "--..", "blank": "++++"}, refuses=["blank"])
        self.assertEqual(grid, ["case            trial 0-3  passed",
                                "charged-twice   ++++          4/4",
                                "product-advice  -+!.          1/3  flaky",
                                "late-order      --..          0/2  never",
                                "blank           ++++          4/4  no model call",
                                "+ passed  - failed  ! incomplete  . not run"])

    def test_a_case_that_passes_or_brings_no_answer_is_unsteady_and_not_flaky(self):
        grid = self.grid({"a": "+!+.", "b": "+!-+", "c": "!...", "d": "+...", "e": "...."}, refuses=["d"])
        self.assertEqual([line[25:] for line in grid[1:-1]], ["unsteady", "flaky", "never", "no model call", ""])

    def test_of_many_cases_those_that_are_not_steady_are_shown_and_the_rest_counted(self):
        steady = {f"good-{place}": "++" for place in range(60)}
        grid = self.grid({**steady, "bad": "--", "odd": "+-", "cut": "+!", "late": ".."})
        self.assertEqual(grid, ["case  trial 0-1  passed", "bad   --            0/2  never", "odd   +-            1/2  flaky",
                                "cut   +!            1/2  unsteady", "not shown, of 64 cases: 60 passed always, 1 not run",
                                "+ passed  - failed  ! incomplete"])
        self.assertEqual(self.grid(steady), ["not shown, of 60 cases: 60 passed always"])
        grid = self.grid({**{f"bad-{place}": "--" for place in range(30)}, **{f"odd-{place}": "-+" for place in range(30)}})
        self.assertEqual(([line.split()[0] for line in grid[1:-2]], grid[-2]), ([*(f"bad-{place}" for place in range(10)), *(f"odd-{place}" for place in range(30))],
                                                                              "not shown, of 60 cases: 20 passed never"))

    def test_columns_are_those_of_a_terminal(self):
        for text, width in (("abc", 3), ("e\u0301", 1), ("\u540d\u524d", 4), ("\u0e01\u0e34\u0e48", 1), ("\u0928\u092e\u0938\u094d\u0924\u0947", 4),
                            ("\U0001f469\u200d\U0001f469\u200d\U0001f467", 2), ("\u2764\ufe0f", 2), ("\u2764\ufe0e", 1), ("1\ufe0f\u20e3", 2),
                            ("\U0001f44d\U0001f3fd", 2), ("\U0001f3f3\ufe0f\u200d\U0001f308", 2), ("\u0915\u094d\u200d\u0937", 2), ("\u1112\u1161\u11ab", 2)):
            with self.subTest(text):
                self.assertEqual(bench.columns(text), width)
                self.assertEqual([bench.columns(self.ascii_term.cut(text * 20, at)) for at in (0, 1, 5, 9)], [0, 1, 5, 9])

    def test_an_extra_column_stands_before_the_note(self):
        grid = self.grid({"a": "+-"}, column=("95 % interval", {"a": "0.1 to 0.9"}))
        self.assertEqual(grid[:2], ["case  trial 0-1  passed  95 % interval", "a     +-            1/2     0.1 to 0.9  flaky"])

    def test_nothing_is_wider_than_the_terminal_and_counts_stay(self):
        for width, trials, name in itertools.product((40, 80, 200), (1, 10, 100, 1000), ("a", "n" * 90, "名前" * 30)):
            letters = {name: "+-" * (trials // 2) + "+" * (trials % 2)}
            for term in (bench.Terminal(width, False, bench.ASCII_GLYPHS), bench.Terminal(width, False, bench.VERDICT_GLYPHS)):
                lines = self.grid(letters, term=term)
                self.assertLessEqual(max(map(bench.columns, lines)), width)
                self.assertIn(f"/{trials}", lines[1])

    def test_progress_is_one_line_on_a_terminal_and_nothing_quick_elsewhere(self):
        stream = io.StringIO()
        progress = bench.Progress("x", stream, clock=steps(0, 30, 70, 70))
        row = {"case_id": "one", "output": 1, "latency_s": 1}
        for ran in (1, 2):
            progress({"planned": 8, "already_logged": 2, "ran": ran, "not_run": 6 - ran}, ran * 2.0, row, "pass")
        progress.erase()
        self.assertEqual(stream.getvalue(), "x: 4 of 8 trials, 0.5 a second, 8 s left\n")

    def test_waiting_is_told_and_is_no_part_of_the_rate(self):
        stream = io.StringIO()
        progress = bench.Progress("x", stream, clock=steps(0, 1, 1, 2))
        progress.note("the system is away", urgent=True)
        progress.note("the system is away", urgent=True)
        progress.note("getting ready", urgent=False)
        self.assertEqual(stream.getvalue(), "x: the system is away\n")

    def test_times_are_said_in_their_largest_units(self):
        self.assertEqual([bench.format_duration(seconds) for seconds in (0.4, 59.6, 200, 7500)], ["0 s", "1 min 0 s", "3 min 20 s", "2 h 5 min"])
        self.assertEqual([bench.format_latency(seconds) for seconds in (0.000101, 0.0994, 0.44, 12.345)], ["0.101 ms", "99.4 ms", "0.44 s", "12.35 s"])


class Screen(io.StringIO):
    """A terminal of so many columns that shows what is written to it; one that is made narrower wraps its lines anew."""

    def __init__(self, width=80, height=24):
        super().__init__()
        self.size, self.rows, self.row, self.column = (width, height), [""], 0, 0

    def isatty(self):
        return True

    def write(self, text):
        for step in re.findall(r"\x1b\[([0-9]*)([A-Za-z])|(\n)|(\r)|([^\x1b\n\r]+)", text):
            number, letter, newline, start, plain = step
            line = self.rows[self.row]
            if letter == "A":
                self.row = max(0, self.row - int(number))
            elif letter == "K":
                self.rows[self.row] = "" if number == "2" else line[:self.column]
            elif letter == "J":
                self.rows[self.row:] = [line[:self.column]]
            elif newline:
                self.row, self.column = self.row + 1, 0
                self.rows += [""] * (self.row == len(self.rows))
            elif start:
                self.column = 0
            elif plain:
                self.rows[self.row] = line[:self.column].ljust(self.column) + plain + line[self.column + len(plain):]
                self.column += len(plain)
                assert self.column <= self.size[0], f"{plain!r} is wider than the screen"

    def resize(self, width, height):
        """Wrap what is wider; the cursor stays at its character."""
        wrapped = [[line[at:at + width] for at in range(0, max(len(line), 1), width)] for line in self.rows]
        self.size, self.row = (width, height), sum(map(len, wrapped[:self.row]))
        self.rows = [part for parts in wrapped for part in parts]

    def text(self):
        return [line.rstrip() for line in self.rows]


class TheLiveGrid(unittest.TestCase):
    def setUp(self):
        self.enterContext(mock.patch.dict(os.environ, {"TERM": "xterm", "NO_COLOR": "1"}))
        self.enterContext(mock.patch.object(harness, "ON_WINDOWS", False))      # where a stream has to be a real console
        self.enterContext(mock.patch.object(bench.Painter, "size", lambda painter: painter.stream.size))
        self.verdicts = {"first": ["not run"] * 4, "second": ["not run"] * 4, "blank": ["pass", *["not run"] * 3]}
        self.now = 0

    def begun(self, screen):
        screen.write("$ bench\n")
        progress = bench.Progress("x", screen, clock=lambda: self.now)
        cases = [case("first"), case("second"), case("blank", expect=KeyError, expect_rejection="no")]
        progress.begin({}, cases, self.verdicts, {})
        self.ran = 0
        return progress

    def end(self, progress, case_id, trial, verdict, seconds=1):
        self.ran, self.now, self.verdicts[case_id][trial] = self.ran + 1, self.now + seconds, verdict
        progress({"planned": 12, "already_logged": 1, "ran": self.ran, "not_run": 11 - self.ran}, self.now,
                 {"case_id": case_id, "output": 1, "latency_s": 1}, verdict)

    def test_the_grid_fills_as_the_trials_end_and_leaves_nothing_behind(self):
        screen = Screen()
        progress = self.begun(screen)
        progress.note("getting ready", urgent=False)
        self.assertEqual(screen.text()[-1], "x: getting ready")
        for case_id, trial, verdict in (("first", 0, "pass"), ("second", 0, "fail"), ("first", 1, "incomplete")):
            self.end(progress, case_id, trial, verdict)
        self.assertEqual(screen.text(), ["$ bench", "case    trial 0-3  passed", "first   +!..          1/2  unsteady",
                                         "second  -...          0/1", "blank   +...          1/1  no model call",
                                         "+ passed  - failed  ! incomplete  . not run",
                                         "x: 4 of 12 trials, 2 passed, 1 a second, 8 s left"])
        progress.erase()
        self.assertEqual((screen.text(), screen.row, screen.column), (["$ bench", *[""] * 6], 1, 0))

    def test_what_a_system_prints_stays_above_the_grid(self):
        screen = Screen()
        progress = self.begun(screen)
        with mock.patch.object(sys, "stderr", screen), mock.patch.object(sys, "stdout", screen):
            with progress.beside():
                self.end(progress, "first", 0, "pass")
                print("odd thing", 1, file=sys.stderr)
                print("half a ", end="", flush=True)
                self.end(progress, "first", 1, "pass")
                print("line")
                self.end(progress, "first", 2, "pass")
                self.assertEqual(screen.text()[:5], ["$ bench", "odd thing 1", "half a line", "case    trial 0-3  passed", "first   +++.          3/3"])
                print("the end", end="")
            progress.erase()
            self.assertIs(sys.stderr, screen)
        self.assertEqual([line for line in screen.text() if line], ["$ bench", "odd thing 1", "half a line", "the end"])

    def test_a_warning_stands_above_the_grid(self):
        screen = Screen()
        progress = self.begun(screen)
        self.end(progress, "first", 0, "pass")
        with mock.patch.object(sys, "stderr", screen):
            progress.warn("see there")
        self.assertEqual(screen.text()[:3], ["$ bench", "warning: see there", "case    trial 0-3  passed"])
        self.assertEqual(len(screen.text()), 8)

    def test_a_terminal_without_room_gets_one_line_and_the_grid_when_it_grows(self):
        screen = Screen()
        progress = self.begun(screen)
        self.end(progress, "first", 0, "pass")
        for size, lines, last in (((30, 24), 2, "2 of 12, 2 passed, 10 s left"), ((80, 7), 2, "x: 3 of 12 trials, 2 passed, 0.0667 a second, 2 min 15 s left"),
                                  ((80, 8), 7, "x: 3 of 12 trials, 2 passed, 0.0571 a second, 2 min 38 s left")):
            screen.resize(*size)
            self.now += 5
            progress.tick()
            shown = [line for line in screen.text() if line]
            self.assertEqual((len(shown), shown[0]), (lines, "$ bench"))
        progress.erase()
        self.assertEqual([line for line in screen.text() if line], ["$ bench"])

    def test_a_dumb_terminal_gets_one_line_without_escapes(self):
        screen = Screen()
        with mock.patch.dict(os.environ, {"TERM": "dumb"}):
            progress = self.begun(screen)
            with mock.patch.object(screen, "write", wraps=screen.write) as written:
                self.end(progress, "first", 0, "pass")
                self.end(progress, "second", 0, "pass")
                progress.erase()
        self.assertNotIn("\x1b", "".join(call[0][0] for call in written.call_args_list))
        self.assertEqual(screen.text(), ["$ bench", ""])

    def test_it_is_drawn_ten_times_a_second_at_most_and_only_what_changed(self):
        screen = Screen()
        progress = self.begun(screen)
        self.end(progress, "first", 0, "pass")
        with mock.patch.object(screen, "write", wraps=screen.write) as written:
            self.end(progress, "first", 1, "pass", seconds=0.05)
            self.assertEqual(written.call_count, 0)
            self.end(progress, "second", 0, "pass", seconds=0.05)
            self.assertEqual(written.call_count, 1)
            self.assertNotIn("blank", written.call_args[0][0])
            self.assertIn("first", written.call_args[0][0])

    def test_after_ctrl_z_it_begins_anew_below(self):
        screen = Screen()
        progress = self.begun(screen)
        self.end(progress, "first", 0, "pass")
        screen.write("^Z\n[1]+ Stopped\n")
        progress.forget()
        progress.tick()
        self.assertEqual(screen.text()[-7:-5], ["[1]+ Stopped", "case    trial 0-3  passed"])

    def test_a_terminal_that_goes_away_does_not_end_the_run(self):
        screen = Screen()
        progress = self.begun(screen)
        with mock.patch.object(screen, "write", side_effect=OSError(errno.EIO, "gone")):
            self.end(progress, "first", 0, "pass")
            progress.erase()

    @unittest.skipUnless(hasattr(os, "fork"), "this system has no pseudo-terminals")
    def test_a_real_terminal_ends_with_the_result_alone(self):
        import fcntl
        import pty
        import termios
        with tempfile.TemporaryDirectory() as folder:
            child, terminal = pty.fork()
            if not child:
                os.execve(sys.executable, [sys.executable, "-S", str(HERE / "bench.py"), "--trials", "20", "--log", f"{folder}/log.jsonl"],
                          {**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": ""})
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            data = b""
            with contextlib.suppress(OSError):      # Linux says so where the other end has closed
                while part := os.read(terminal, 65536):
                    data += part
            os.close(terminal)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
        screen = Screen()
        screen.write(data.decode())
        shown = "\n".join(screen.text())
        self.assertRegex(shown, r"\Abayes: planned 180, already logged 0, ran 180, not run 0\n\ncase  ")
        self.assertEqual(shown.count("charged-twice"), 1)
        self.assertIn(b"trials, ", data)


# The embedded sampler

BILLING, DELIVERY = ("billing", False), ("delivery", False)
TWO_EXAMPLES = (("billing", False, ("Refund my card.",)), ("delivery", False, ("Where is my parcel?",)))
SHARES = {"a": 1, "b": 1, "c": 2}


def saying(text):
    """A case with this message."""
    return {"id": "x", "input": text}


def runs_of_8(text):
    """Every run of 8 words of a text."""
    said = model_triage.words(text)
    return {tuple(said[start:start + 8]) for start in range(len(said) - 7)}


def all_messages():
    """The messages of all 16 cases that are text."""
    cases = harness.load_cases(harness.DEFAULT_CASES, triage_task)["cases"]
    return [case["input"] for case in cases if isinstance(case["input"], str)]


def example_messages():
    """All messages that bayes has learnt from."""
    return [message for _, _, messages in model_triage.EXAMPLES for message in messages]


def draws(weights, text, number):
    """The labels drawn for one text with the seeds from 0."""
    return [model_triage.draw(weights, seed, text) for seed in range(number)]


class BayesArithmetic(unittest.TestCase):
    def test_words_are_casefolded_and_of_any_script(self):
        self.assertEqual(model_triage.words("STRASSE, Straße – l'Été: 日本 2x!"),
                         ["strasse", "strasse", "l", "été", "日本", "2x"])

    def test_a_fit_has_every_word_once_more_than_it_was_said(self):
        examples = (("billing", False, ("Pay my card", "my my")), ("delivery", False, ("Late",)))
        self.assertEqual(model_triage.fit(examples), {
            BILLING: (2, {"pay": 2, "my": 4, "card": 2, "late": 1}),
            DELIVERY: (1, {"pay": 1, "my": 1, "card": 1, "late": 2})})

    def test_likelihoods_are_what_a_hand_computes(self):
        # 6 words are known: billing has 3 + 6 = 9 smoothed words, delivery 4 + 6 = 10.
        self.assertEqual(model_triage.likelihoods(model_triage.fit(TWO_EXAMPLES), "My PARCEL, please!"), {
            BILLING: Fraction(2, 9) * Fraction(1, 9),
            DELIVERY: Fraction(2, 10) * Fraction(2, 10)})

    def test_weights_are_what_a_hand_computes(self):
        # (2/81) / (1/25) = 50/81, whose square root is 0.78567…
        self.assertEqual(model_triage.label_weights(model_triage.fit(TWO_EXAMPLES), "my parcel"),
                         {BILLING: 785, DELIVERY: 1000})

    def test_no_known_word_leaves_the_prior(self):
        fitted = model_triage.fit(TWO_EXAMPLES[:1] + (("delivery", False, ("Where?", "When?", "Why?")),))
        for text in ("?!", "日本語", "zzz"):
            self.assertEqual(model_triage.label_weights(fitted, text), {BILLING: 1000, DELIVERY: 3000})

    def test_unknown_and_repeated_words_change_nothing(self):
        fitted = model_triage.bayes.fitted
        self.assertEqual(model_triage.label_weights(fitted, "Where is my parcel? " * 5000 + "zzz"),
                         model_triage.label_weights(fitted, "Where is my parcel?"))

    def test_every_weight_is_a_whole_number(self):
        for text in all_messages() + ["\ud800 parcel", " ".join(example_messages())]:
            weights = model_triage.label_weights(model_triage.bayes.fitted, text)
            self.assertEqual({type(weight) for weight in weights.values()}, {int})
            self.assertGreaterEqual(max(weights.values()), 1000)


class BayesDraws(unittest.TestCase):
    def test_known_draws_are_the_same_on_every_python(self):
        self.assertEqual("".join(draws(SHARES, "Hello", 40)), "aabaabccbacacccccabbaaacccccacbbcbccaaac")

    def test_2000_draws_match_the_posterior(self):
        for text in all_messages():
            weights = model_triage.label_weights(model_triage.bayes.fitted, text)
            drawn = Counter(draws(weights, text, 2000))
            for label, weight in weights.items():
                expected = 2000 * weight // sum(weights.values())
                self.assertAlmostEqual(drawn[label], expected, delta=80, msg=(text, label))

    def test_a_weight_of_0_is_never_drawn(self):
        self.assertEqual(set(draws({"a": 0, "b": 3, "c": 0}, "Hello", 500)), {"b"})

    def test_two_messages_of_one_trial_are_independent_draws(self):
        pairs = Counter(zip(draws(SHARES, "Hello", 1600), draws(SHARES, "Hello!", 1600)))
        for one, first in SHARES.items():
            for other, second in SHARES.items():
                self.assertAlmostEqual(pairs[one, other], 100 * first * second, delta=60, msg=(one, other))


class BayesAsASystem(unittest.TestCase):
    def test_it_describes_itself(self):
        self.assertEqual(harness.system_identity(model_triage.bayes),
                         {"name": "bayes", "version": "1", "mode": "embedded", "model": "bayes@4bf543270e33",
                          "prompt": "", "tools": []})

    def test_an_edited_example_is_another_model(self):
        edited = (("billing", False, ("Refund my cart.",)),) + TWO_EXAMPLES[1:]
        self.assertNotEqual(model_triage.Bayes(examples=edited).model, model_triage.Bayes(examples=TWO_EXAMPLES).model)

    def test_nothing_is_fitted_before_the_first_message(self):
        system = model_triage.Bayes()
        harness.system_identity(system)
        self.assertNotIn("fitted", vars(system))

    def test_an_answer_has_its_seed_and_its_weight(self):
        system = model_triage.Bayes(examples=TWO_EXAMPLES)
        weights = {"billing": "785/1785", "delivery": "1000/1785"}
        for trial in range(20):
            answer = system.respond(saying("my parcel"), trial)
            weight = weights[answer.output["category"]]
            self.assertEqual(answer.metadata, {"seed": 1000 + trial, "weight": weight})

    def test_an_answer_depends_on_seed_and_message_alone(self):
        asked = [(saying(text), trial) for text in ("Where is it?", "My card!") for trial in range(20)]
        there = [model_triage.Bayes().respond(*each) for each in asked]
        back = [model_triage.bayes.respond(*each) for each in reversed(asked)]
        self.assertEqual(there, back[::-1])

    def test_a_blank_message_is_refused(self):
        for text in ("", "   \n", "\r\n\t\r\n", "\u3000"):
            with self.assertRaisesRegex(harness.Rejection, "^message is blank$"):
                model_triage.bayes.respond(saying(text), 0)

    def test_a_message_that_is_no_text_is_refused(self):
        for case in (saying(None), saying(7), saying(["Hello"]), {"id": "x"}):
            with self.assertRaisesRegex(harness.Rejection, "^message is not text$"):
                model_triage.bayes.respond(case, 0)

    def test_ten_trials_pass_as_recorded(self):
        case_set = harness.load_cases(harness.DEFAULT_CASES, triage_task)
        recording = harness.record(model_triage.bayes, case_set, ["development"], 10)
        rows = harness.replay(recording, triage_task, case_set)["results"]
        passed = Counter(row["case_id"] for row in rows if row["verdict"] == "pass")
        self.assertEqual(passed, {
            "charged-twice": 7, "stuck-tracking": 9, "password-changed": 10, "product-advice": 9,
            "refund-missing": 8, "charged-after-closing": 2, "blank-message": 10, "missing-body": 10,
            "late-order": 8})

    def test_the_hash_seed_of_python_changes_nothing(self):
        code = ("from model_triage import bayes\n"
                "print([bayes.respond({'input': 'Is it lost?'}, trial) for trial in range(20)])")
        printed = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                                  cwd=Path(model_triage.__file__).parent,
                                  env={**os.environ, "PYTHONHASHSEED": seed}).stdout for seed in ("1", "2")}
        self.assertEqual(len(printed), 1)


class BayesExamples(unittest.TestCase):
    def test_no_example_shares_8_words_with_a_case(self):
        of_cases = set().union(*map(runs_of_8, all_messages()))
        self.assertGreater(len(of_cases), 200)
        for message in example_messages():
            self.assertEqual(runs_of_8(message) & of_cases, set(), message)

    def test_no_example_stands_twice(self):
        self.assertEqual(len(set(example_messages())), len(example_messages()))

    def test_every_label_has_as_many_examples(self):
        self.assertEqual({label[:2]: len(label[2]) for label in model_triage.EXAMPLES},
                         {("billing", False): 12, ("delivery", False): 12, ("account", False): 12,
                          ("account", True): 12, ("other", False): 12})


# The Ollama side

WIRE = json.loads((HERE / "recorded" / "ollama-wire.json").read_text())
DIGESTS = {"smollm2:135m": "fd5f44c0b5aff6453726119fc560d73a8a995a55b4a49804bc24b1969ecf1794",
           "gemma4:e2b": "b37049369adf" + "0" * 52}


def chat_body(content=json.dumps(GOOD), message=None, **changes):
    """The body of a normal chat answer; a change to None takes the key out."""
    body = {"model": "smollm2:135m", "created_at": "2026-11-29T20:01:28Z",
            "message": {"role": "assistant", "content": content, **(message or {})},
            "done": True, "done_reason": "stop", "total_duration": 490006744, "load_duration": 1356485,
            "prompt_eval_count": 60, "prompt_eval_duration": 131049000, "eval_count": 20,
            "eval_duration": 352432000, **changes}
    return {key: value for key, value in body.items() if value is not None}


def ollama_host(value):
    """The context in which OLLAMA_HOST has that value."""
    return mock.patch.dict(os.environ, OLLAMA_HOST=value)


class FakeOllama:
    """A stand-in Ollama server on a loopback port, over real sockets that are kept open between requests.

        with FakeOllama({"status": 503}, {"delay": 0.1}) as server:
            …       # the first chat is answered with 503, the second late, all later ones as usual

    Inside the with block OLLAMA_HOST is its address. A reply is a dict; every key may be left out:

        status   200
        body     text, bytes, or a value that is sent as JSON; else a normal chat answer, or an error's
        headers  {name: value}, beside Content-Length
        chunked  True sends the body in chunks
        delay    seconds before the answer
        drip     seconds before each byte
        cut      send only so many bytes of the answer, head included, and then do what `after` says
        raw      the bytes of the whole answer, instead of the above
        after    "keep" the connection open, "close" it, "reset" it, or "hang" until the server stops;
                 "close" where there is a cut, else "keep"

    usual is the reply to a chat once the given ones are used up: a dict, or a function of (request, number of
    the chat, from 0) that returns one. others maps the other paths to their replies, or functions that return
    them. A chat loads the model that its tag has then, which stays loaded; repoint() gives a tag another one.
    keep_alive 0 is honoured, in a request or else as the server's own; forgets unloads after every chat all the same;
    cold is the load_duration of a chat that has to load.
    requests logs every request as {method, path, headers, body (from JSON), connection (its number, from 0)}; chats are
    the bodies of the chats, answered the digests that were asked. stop() ends it like a killed server; start() brings it back at the same port, logs kept."""

    def __init__(self, *replies, usual=None, models=DIGESTS):
        details = {"parameter_size": "134.52M", "quantization_level": "Q4_1"}
        self.listed = [{"name": name, "digest": digest, "details": details} for name, digest in models.items()]
        self.loaded, self.answered = [], []
        self.keep_alive, self.forgets, self.cold = None, False, 1356485
        self.replies, self.usual = list(replies), usual or {}
        self.others = {"/api/version": {"body": {"version": "0.33.0"}}, "/api/tags": {"body": {"models": self.listed}},
                       "/api/ps": lambda: {"body": {"models": self.loaded}}}
        self.requests, self.connections, self.chatted, self.port = [], 0, 0, 0
        self.lock = threading.Lock()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def paths(self):
        return [request["path"] for request in self.requests]

    @property
    def chats(self):
        return [request["body"] for request in self.requests if request["path"].endswith("/api/chat")]

    def repoint(self, tag, digest):
        """`ollama cp OTHER TAG`: what is loaded stays loaded, under the name that it was loaded by."""
        for model in self.listed:
            if model["name"] == tag:
                model["digest"] = digest

    def load(self, request):
        """Load the model of a chat, unless it is loaded under whatever name; whether it had to be."""
        digests = {model["name"].lower(): model["digest"] for model in self.listed}
        digest = digests.get(request["body"]["model"].lower())
        self.answered.append(digest)
        cold = digest and all(model["digest"] != digest for model in self.loaded)
        if cold:
            self.loaded = [*self.loaded, {"name": request["body"]["model"], "digest": digest, "size": 200, "size_vram": 50,
                                          "context_length": 4096}]
        kept = request["body"].get("keep_alive", self.keep_alive)
        if self.forgets or kept == 0:
            self.loaded = [model for model in self.loaded if model["digest"] != digest]
        return cold

    def start(self):
        self.listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.stopping, self.open = threading.Event(), set()
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()
        return self

    def stop(self):
        if self.stopping.is_set():
            return
        self.stopping.set()
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 5).close()       # wakes accept
        self.threads[0].join()
        with self.lock:
            for connection in self.open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(5)

    def __enter__(self):
        self.start()
        self.environment = ollama_host(self.address)
        self.environment.start()
        return self

    def __exit__(self, *exception):
        self.environment.stop()
        self.stop()

    def _accept(self):
        with self.listener:
            while True:
                connection, _ = self.listener.accept()
                if self.stopping.is_set():
                    return connection.close()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self.lock:
                    self.open.add(connection)
                    number, self.connections = self.connections, self.connections + 1
                thread = threading.Thread(target=self._serve, args=(connection, number), daemon=True)
                self.threads.append(thread)
                thread.start()

    def _serve(self, connection, number):
        with contextlib.suppress(OSError), connection.makefile("rb") as stream:
            while request := self._read(stream, number):
                if not self._send(connection, self._reply_to(request)):
                    break
        connection.close()
        with self.lock:
            self.open.discard(connection)

    def _read(self, stream, number):
        start = stream.readline().decode("latin-1").split()
        if not start:
            return None
        headers = {}
        while line := stream.readline().decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        text = stream.read(int(headers.get("content-length", 0)))
        return {"method": start[0], "path": start[1], "headers": headers,
                "body": json.loads(text) if text else None, "connection": number}

    def _reply_to(self, request):
        with self.lock:
            self.requests.append(request)
            if not request["path"].endswith("/api/chat"):
                reply = self.others.get(request["path"].removeprefix("/ollama"), {"status": 404, "body": ""})
                return reply() if callable(reply) else reply
            load_duration = self.cold if self.load(request) else 1356485
            number, self.chatted = self.chatted, self.chatted + 1
            if self.replies:
                return self.replies.pop(0)
        reply = self.usual(request, number) if callable(self.usual) else self.usual
        return reply or {"body": chat_body(load_duration=load_duration)}

    def _bytes_of(self, reply):
        status = reply.get("status", 200)
        body = reply.get("body", chat_body() if status == 200 else {"error": "as the test wants it"})
        text = body if isinstance(body, (bytes, str)) else json.dumps(body)
        content = text if isinstance(text, bytes) else text.encode()
        headers = {"Content-Length": len(content), **reply.get("headers", {})}
        if reply.get("chunked") or "Transfer-Encoding" in headers:
            headers["Transfer-Encoding"] = "chunked"
            del headers["Content-Length"]
            half = len(content) // 2
            parts = [part for part in (content[:half], content[half:]) if part]
            content = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {status} Any\r\n{head}\r\n".encode() + content

    def _send(self, connection, reply):
        """Whether the connection goes on."""
        if "delay" in reply:
            self.stopping.wait(reply["delay"])
        content = reply["raw"] if "raw" in reply else self._bytes_of(reply)
        content = content[:reply.get("cut")]
        for byte in content if "drip" in reply else ():
            if self.stopping.wait(reply["drip"]):
                return False
            connection.sendall(bytes([byte]))
        if "drip" not in reply:
            connection.sendall(content)
        after = reply.get("after", "close" if "cut" in reply else "keep")
        if after == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("HH" if os.name == "nt" else "ii", 1, 0))
        elif after == "hang":
            self.stopping.wait()
        return after == "keep"


HANG = {"cut": 0, "after": "hang"}
CASES = json.loads((HERE / "cases.json").read_text())["cases"][:9]
BY_ID = {case["id"]: case for case in CASES}
CASE = BY_ID["charged-twice"]


def small(**settings):
    """A system of the stand-in's smollm2:135m that asks a busy server again without long pauses."""
    system = ModelTriage("smollm2:135m").configured(**settings)
    system.pauses_s = (0.01, 0.02)
    return system


def verdict(system, case=CASE, trial=0):
    """(what a trial gets, its metadata): "Answer" or the name of its error."""
    try:
        return "Answer", system.respond(case, trial).metadata
    except Exception as error:
        return type(error).__name__, getattr(error, "metadata", None)


def refusal(test, function, *arguments):
    """The SystemDown that a call raises."""
    with test.assertRaises(SystemDown) as caught:
        function(*arguments)
    return caught.exception


# What a trial gets whose POST /api/chat is answered like this: patterns of the recorded exchanges' names.
CHAT_VERDICTS = {
    "Answer": "chars_* chat_*_seed* chat_name_uppercase ctx64_* keep_alive_0 load_smollm2_* logprobs_smollm2 "
              "long_smollm2_default opt_num_predict_0 opt_num_predict_minus1",
    "TruncatedReply": "chat_gemma3_free_text chat_*_num_predict3 ctx128_*_shift_false format_json "
                      "messages_content_* opt_num_ctx_0 opt_seed_float opt_seed_minus1 "
                      "opt_temperature_negative opt_unknown_name par_* queue_full_loading_1 "
                      "queue_full_loading_7 think_absent unknown_top_level_field",
    "JSONDecodeError": "chat_smollm2_free_text ctx128_*_past_context format_empty_string format_null",
    "UnfinishedReply": "keep_alive_0_no_messages load_only_no_messages messages_empty repeat_token_abort*",
    "ContextOverflow": "long_smollm2_shift_false long_smollm2_truncate_false*",
    "ServerError": "format_number opt_num_predict_string opt_seed_string opt_temperature_string runner_killed_*",
    "BadReply": "server_sig*",
    "TimeoutError": "client_disconnect_nonstream",
    "SystemDown": "bad_json_* chat_get chat_model_not_* chat_not_installed* format_schema_* model_* "
                  "path_trailing_slash queue_full_loading_0 queue_full_loading_2 server_not_running "
                  "think_bogus think_high think_true_smollm2",
}
# What the preflight says when its own question was answered like this.
PREFLIGHT_VERDICTS = {
    "ready": "keepalive_conn ps_* tags version",
    "SystemDown": "head_version path_unknown post_version root server_not_running_version show_not_installed "
                  "tags_empty version_trailing_slash",
}


def matching(verdicts, name):
    return [outcome for outcome, patterns in verdicts.items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns.split())]


def reply_of(exchange):
    """The stand-in's reply that repeats a recorded answer."""
    if "status" not in exchange:
        return HANG if "client closed" in exchange.get("socket_error", "") else {"cut": 0}
    reply = {key: exchange[key] for key in ("status", "headers", "body")}
    return {**reply, "after": "close"} if exchange["request"].startswith("HEAD") else reply


class RecordedExchanges(unittest.TestCase):
    """Every exchange recorded from a real server, repeated by the stand-in."""

    def test_every_exchange_has_one_verdict(self):
        for name, exchange in WIRE["exchanges"].items():
            chat = "/api/chat" in exchange["request"]
            self.assertEqual(len(matching(CHAT_VERDICTS if chat else PREFLIGHT_VERDICTS, name)), 1, name)

    def test_a_trial_gets_the_verdict_of_its_answer(self):
        with FakeOllama() as server:
            for name, exchange in WIRE["exchanges"].items():
                if "/api/chat" not in exchange["request"]:
                    continue
                with self.subTest(name):
                    if "refused" in exchange.get("socket_error", ""):
                        server.stop()
                    server.replies = [reply_of(exchange)] * 3
                    system = small(timeout_s=0.2 if reply_of(exchange) == HANG else 30)
                    got, metadata = verdict(system)
                    self.assertEqual([got], matching(CHAT_VERDICTS, name))
                    if exchange.get("status") == 200:
                        self.assertEqual(metadata.get("reply", ""), json.loads(exchange["body"])["message"]["content"])
                    system.close()
                    if server.stopping.is_set():
                        server.start()

    def test_the_preflight_tells_a_usable_server_from_others(self):
        for name, exchange in WIRE["exchanges"].items():
            if "/api/chat" in exchange["request"]:
                continue
            path = exchange["request"].split()[1]
            with self.subTest(name), FakeOllama() as server:
                server.others[path if path in server.others else "/api/version"] = reply_of(exchange)
                if "refused" in exchange.get("socket_error", ""):
                    server.stop()
                try:
                    system = small()
                    system.check_model()
                    system.server_facts()
                    got = "ready"
                except SystemDown:
                    got = "SystemDown"
                self.assertEqual([got], matching(PREFLIGHT_VERDICTS, name))

    def test_what_the_server_says_of_a_loaded_model(self):
        with FakeOllama() as server:
            server.others |= {"/api/tags": reply_of(WIRE["exchanges"]["tags"]),
                              "/api/ps": reply_of(WIRE["exchanges"]["ps_smollm2_loaded"])}
            system = small()
            system.check_model()
            self.assertEqual(system.server_facts(), {"quantization_level": "Q4_1", "parameter_size": "134.52M",
                                                     "context_length": 4096, "gpu_percent": 0})


# The values of OLLAMA_HOST that Ollama's own client cannot use either, and why.
UNUSABLE_HOSTS = {
    "ftp://example.com": "ftp:// is neither http:// nor https://",
    "unix:///run/x": "unix:// is neither http:// nor https://",
    "://": ":// is neither http:// nor https://",
    "http://user:pw@example.com:99": '"user:pw@example.com:99" is no host\'s name or address',
    "example.com:0": "0 is no port to connect to",
    "example.com:+80": "+80 is no port to connect to",
    "1.2.3.4:5:6": '"1.2.3.4:5:6" is no host\'s name or address',
    "exa mple": '"exa mple" is no host\'s name or address',
}


class ServerAddress(unittest.TestCase):

    def test_ollama_host_is_read_as_ollama_reads_it(self):
        for value, url in WIRE["hosts"]:
            with self.subTest(value):
                if value in UNUSABLE_HOSTS:
                    self.assertEqual(
                        str(refusal(self, model_triage.server_address, value)),
                        f"OLLAMA_HOST is {json.dumps(value)}, which cannot work: {UNUSABLE_HOSTS[value]}; "
                        "set it to something like 127.0.0.1:11434 or https://example.com")
                else:
                    self.assertEqual(model_triage.server_address(value).url, url)

    def test_what_a_client_connects_to(self):
        for value, expected in {
                "": (False, "127.0.0.1", 11434, "127.0.0.1:11434", ""),
                ":1234": (False, "127.0.0.1", 1234, ":1234", ""),
                "[::]:80": (False, "::1", 80, "[::1]:80", ""),
                "fe80::1%eth0": (False, "fe80::1%eth0", 11434, "[fe80::1]:11434", ""),
                "https://example.com/a/b?x=1#y": (True, "example.com", 443, "example.com:443", "/a/b%3Fx=1%23y"),
                "http://example.com:1234/ollama/": (False, "example.com", 1234, "example.com:1234", "/ollama"),
                "10.0.0.5:011434": (False, "10.0.0.5", 11434, "10.0.0.5:011434", ""),
                "HTTP://example.com": (False, "example.com", 11434, "example.com:11434", "")}.items():
            self.assertEqual(dataclasses.astuple(model_triage.server_address(value))[:5], expected)

    def test_a_path_stands_before_every_request(self):
        with FakeOllama() as server, ollama_host(f"http://{server.address}/ollama/"):
            small().respond(CASE, 0)
            self.assertEqual(server.paths, ["/ollama/api/version", "/ollama/api/chat"])

    def test_proxy_settings_do_not_apply(self):
        nowhere = dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
        with FakeOllama(), mock.patch.dict(os.environ, nowhere):
            self.assertEqual(small().respond(CASE, 0).output, GOOD)

    def test_a_server_without_tls_cannot_be_reached_by_https(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"https://127.0.0.1:{server.getsockname()[1]}"
            thread = threading.Thread(target=lambda: server.accept()[0].close())
            thread.start()
            with ollama_host(address):
                self.assertIn(f"{address} cannot be reached (", str(refusal(self, small().respond, CASE, 0)))
            thread.join()

    def test_an_unknown_host_is_named_with_the_setting(self):
        unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        with ollama_host("http://olama.lan:80"), mock.patch("socket.getaddrinfo", side_effect=unknown):
            down = refusal(self, small().respond, CASE, 0)
        self.assertEqual((str(down), down.may_return), (
            'OLLAMA_HOST is "http://olama.lan:80", and its host "olama.lan" is not known '
            "(Name or service not known): correct the value, or the name look-up", False))

    def test_a_look_up_that_fails_for_now_may_return(self):
        passing = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        with ollama_host("ollama.lan"), mock.patch("socket.getaddrinfo", side_effect=passing):
            self.assertTrue(refusal(self, small().respond, CASE, 0).may_return)

    def test_the_name_look_up_is_no_part_of_the_deadline_and_is_done_once(self):
        look_up, slow = socket.getaddrinfo, []

        def slow_look_up(*arguments, **options):
            slow.append(skip(80))
            return look_up(*arguments, **options)

        with FakeOllama(), skipping_time() as skip, mock.patch("socket.getaddrinfo", slow_look_up):
            system = small(timeout_s=70)
            system.server_version = "0.33.0"
            self.assertEqual([verdict(system)[0] for _ in range(3)], ["Answer"] * 3)
        self.assertEqual(len(slow), 1)


def asked(prompt, schema=None):
    """What a task asks with one user message."""
    return {"messages": [{"role": "user", "content": prompt}], "schema": schema, "options": {}, "think": None}


class OneRequest(unittest.TestCase):

    def test_a_trial_is_one_request(self):
        with FakeOllama() as server:
            answer = small().respond(CASE, 3)
            self.assertEqual([(request["method"], request["path"]) for request in server.requests],
                             [("GET", "/api/version"), ("POST", "/api/chat")])
            self.assertEqual(server.chats, [{
                "model": "smollm2:135m",
                "messages": [{"role": "system", "content": model_triage.PROMPT},
                             {"role": "user", "content": CASE["input"]}],
                "stream": False, "think": False,
                "format": {"type": "object",
                           "properties": {
                               "category": {"type": "string", "enum": ["billing", "delivery", "account", "other"]},
                               "needs_human": {"type": "boolean"}},
                           "required": ["category", "needs_human"], "additionalProperties": False},
                "truncate": False, "shift": False, "keep_alive": "30m",
                "options": {"temperature": 1.0, "num_predict": 64, "num_ctx": 4096, "seed": 1003}}])
            self.assertEqual(answer, Answer(GOOD, {
                "reply": '{"category": "billing", "needs_human": false}',
                "eval_count": 20, "prompt_eval_count": 60, "done_reason": "stop",
                "total_duration_s": 0.490006744, "load_duration_s": 0.001356485,
                "prompt_eval_duration_s": 0.131049, "eval_duration_s": 0.352432,
                "seed": 1003, "temperature": 1.0, "server_version": "0.33.0", "timeout_s": 120.0,
                "after_prime": False, "tries": 1}))

    def test_any_messages_and_schema_make_a_system(self):
        schema = {"type": "array", "items": {"type": "integer"}}
        counting = asked("Count the words and the vowels of: {input}", schema)
        with FakeOllama({"body": chat_body("[3, 4]")}) as server:
            system = model_triage.OllamaChat("smollm2:135m", counting)
            self.assertEqual(system.respond({"input": "Ten {input} eggs"}, 0).output, [3, 4])
            chat, = server.chats
        self.assertEqual((chat["messages"], chat["format"]), (
            [{"role": "user", "content": "Count the words and the vowels of: Ten {input} eggs"}], schema))
        self.assertEqual((system.prompt, system.schema, system.asked), (
            "sha256:" + harness.sha256(harness.canonical(counting["messages"])), harness.sha256(harness.canonical(schema)),
            counting))

    def test_the_fields_of_an_input_fill_the_messages_and_a_reply_without_a_schema_is_text(self):
        naming = asked("{input.a} or {input.b}? {not} {input.c}")
        with FakeOllama({}, {"body": chat_body(" \n It is B. \n")}) as server:
            system = ModelTriage("smollm2:135m").asking(naming)
            system.check_model()
            self.assertEqual(system.respond({"input": {"a": "A", "b": "{input.a}", "c": [1, "é"]}}, 0).output, "It is B.")
            probe, chat = server.chats
        hello = system.probe_message
        self.assertEqual([sent["messages"][0]["content"] for sent in (probe, chat)],
                         [f"{hello} or {hello}? {{not}} {hello}", 'A or {input.a}? {not} [1, "é"]'])
        self.assertEqual(("format" in chat, chat["options"]["num_predict"]), (False, 512))
        self.assertIsNone(harness.system_identity(system)["schema"])

    def test_what_the_task_asks_for_loses_against_what_is_set_in_either_order(self):
        wanted = {**asked("{input}"), "options": {"temperature": 0.2, "top_k": 5}, "think": "high"}
        model = ModelTriage("smollm2:135m")
        for system in (model.asking(wanted).configured({"top_k": "9"}, "off"), model.configured({"top_k": "9"}, "off").asking(wanted)):
            self.assertEqual(system.options, {"temperature": 0.2, "num_predict": 512, "num_ctx": 4096, "think": False, "top_k": 9})
        self.assertEqual(model.asking(wanted).options["think"], "high")
        self.assertEqual(model.options, {"temperature": 1.0, "num_predict": 64, "num_ctx": 4096, "think": False})

    def test_what_the_task_asks_for_is_checked_like_an_option(self):
        for changes, message in (({"options": {"top_k": "x"}}, 'option top_k is "x": it takes a whole number from 0 up'),
                                 ({"options": {"temprature": 1}}, 'unknown option "temprature"; did you mean "temperature"?'),
                                 ({"think": "of"}, 'think is "of", not one of off, on, low, medium, high, max; did you mean "off"?')):
            with self.assertRaises(RunError) as caught:
                ModelTriage("smollm2:135m").asking({**asked("{input}"), **changes})
            self.assertEqual(str(caught.exception), f"the task asks for what Ollama has not: {message}")

    def test_a_model_that_is_asked_the_triage_again_is_the_same_system(self):
        gemma = model_triage.gemma
        self.assertEqual(harness.system_identity(gemma.asking(asked("{input}")).asking(gemma.asked)), harness.system_identity(gemma))

    def test_the_identity_of_a_pinned_model_needs_no_server(self):
        self.assertEqual({**harness.system_identity(model_triage.gemma), "prompt": None}, {
            "name": "gemma4:e2b", "version": "1", "mode": "live", "model": "gemma4:e2b@b37049369adf",
            "prompt": None, "tools": [],
            "options": {"temperature": 1.0, "num_predict": 64, "num_ctx": 4096, "think": False},
            "schema": harness.sha256(harness.canonical(model_triage.SCHEMA))})
        self.assertEqual(model_triage.qwen.model, "qwen3.5:0.8b@de63045f2975")

    def test_another_tag_is_pinned_to_the_digest_that_is_installed(self):
        with FakeOllama() as server:
            system = small()
            self.assertEqual([system.model, system.model], ["smollm2:135m@fd5f44c0b5af"] * 2)
            self.assertEqual(server.paths, ["/api/tags"])

    def test_blank_and_missing_messages_never_reach_the_model(self):
        with FakeOllama() as server:
            for case in (BY_ID["blank-message"], BY_ID["missing-body"]):
                with self.assertRaises(Rejection) as caught:
                    small().respond(case, 0)
                self.assertEqual(str(caught.exception), case["expect_rejection"])
            self.assertEqual(server.requests, [])

    def test_importing_the_module_touches_no_network(self):
        code = "import sys, model_triage; print(sorted({'http.client', 'ssl'} & set(sys.modules)))"
        done = subprocess.run([sys.executable, "-S", "-E", "-c", code], cwd=HERE, capture_output=True,
                              text=True)
        self.assertEqual((done.stdout, done.stderr), ("[]\n", ""))

    def test_an_ollama_tag_names_a_system(self):
        for tag in ("llama3.2:3b", "hf.co/someone/Llama-3.2-1B-GGUF:Q4_K_M", "localhost:5000/me/model:1", "phi3.5"):
            self.assertEqual((model_triage.system(tag).tag, model_triage.system(tag).name), (tag, tag.lower()))

    def test_a_misspelt_system_is_refused(self):
        for name in ("bayess", "a b:c d", "llama3.2:", "x:y:z"):
            with self.assertRaises(RunError):
                model_triage.system(name)


class Replies(unittest.TestCase):

    def assert_reply(self, error, words, **changes):
        """That a chat body gets this error with these words; returns the trial's metadata."""
        with FakeOllama({"body": chat_body(**changes)}):
            with self.assertRaises(Exception) as caught:
                small().respond(CASE, 0)
        self.assertEqual((type(caught.exception).__name__, str(caught.exception)), (error, words))
        return caught.exception.metadata

    def test_a_reply_cut_at_num_predict(self):
        metadata = self.assert_reply(
            "TruncatedReply", "the reply was cut after 64 tokens: raise num_predict, or num_ctx",
            content='{"cat', done_reason="length", eval_count=64)
        self.assertEqual(metadata["reply"], '{"cat')

    def test_thinking_that_uses_up_all_tokens(self):
        metadata = self.assert_reply(
            "TruncatedReply", "the reply was cut after 64 tokens of thinking: raise num_predict, or num_ctx",
            content="", message={"thinking": "Hm."}, done_reason="length", eval_count=64)
        self.assertEqual((metadata["reply"], metadata["thinking"]), ("", "Hm."))

    def test_an_empty_answer_after_thinking_has_a_name_of_its_own(self):
        metadata = self.assert_reply("EmptyReply", "no answer after the thinking",
                                     content="\n", message={"thinking": "Hm."})
        self.assertEqual(metadata["thinking"], "Hm.")

    def test_thinking_is_kept_with_an_answer(self):
        with FakeOllama({"body": chat_body(message={"thinking": "Money, so billing."})}):
            self.assertEqual(small().respond(CASE, 0).metadata["thinking"], "Money, so billing.")

    def test_an_empty_answer_without_thinking_is_no_json(self):
        self.assert_reply("JSONDecodeError", "Expecting value: line 1 column 1 (char 0)", content="")

    def test_a_reply_that_the_server_gave_up(self):
        self.assert_reply("UnfinishedReply", "the server ended the reply before the model did (done is false)",
                          done=False)

    def test_a_model_that_was_only_loaded(self):
        self.assert_reply("UnfinishedReply", "the server only loaded the model (done_reason load)",
                          done_reason="load")

    def test_what_is_not_json_keeps_its_text(self):
        for reply in ("Billing.", "NaN", '{"category": -Infinity}', "1e999", "9" * 5000, "[" * 100000,
                      '{"a": 1, "a": 2}', "\ud800", "\0", "{} {}"):
            with self.subTest(reply[:20]), FakeOllama({"body": chat_body(reply)}):
                got, metadata = verdict(small())
                self.assertEqual((got, metadata["reply"]), ("JSONDecodeError", reply))

    def test_a_body_without_the_expected_fields(self):
        for body in ("", "[]", "null", "Ollama is running", b"\xff\xfe", "9" * 5000, "[" * 100000, '{"a": NaN}',
                     {"message": "hi", "done": True}, chat_body(done=None), chat_body(content=5),
                     {"error": "late"}):
            with self.subTest(str(body)[:30]), FakeOllama({"body": body}):
                got, metadata = verdict(small())
                self.assertEqual((got, metadata["seed"], "reply" in metadata), ("BadReply", 1000, False))

    def test_odd_facts_are_left_out_of_the_metadata(self):
        odd = {"eval_count": "20", "prompt_eval_count": True, "total_duration": -1, "load_duration": 10 ** 400,
               "prompt_eval_duration": 0.5, "eval_duration": None, "done_reason": 7}
        with FakeOllama({"body": chat_body(**odd)}):
            metadata = small().respond(CASE, 0).metadata
        self.assertEqual(" ".join(metadata), "reply seed temperature server_version timeout_s after_prime tries")

    def test_the_server_errors_own_words_are_kept(self):
        for body, words in (('{"error":"the runner has\\nstopped"}', "the runner has stopped"),
                            ('{"error":"{\\"error\\":{\\"message\\":\\"out of memory\\"}}"}', "out of memory"),
                            ("<html>Oops</html>", "<html>Oops</html>"), ("", "no words"),
                            ("x" * 1000, "x" * 299 + "…")):
            with self.subTest(body[:30]), FakeOllama({"status": 500, "body": body}):
                with self.assertRaises(model_triage.ServerError) as caught:
                    small().respond(CASE, 0)
                self.assertEqual((str(caught.exception), caught.exception.metadata["tries"]), (words, 1))

    def test_a_prompt_over_the_context(self):
        for words in ("request (24135 tokens) exceeds the available context size (4096 tokens), try increasing it",
                      "the input length exceeds the context length",
                      "prompt too long; exceeded max context length by 3 tokens"):
            with self.subTest(words), FakeOllama({"status": 400, "body": {"error": words}}):
                self.assertEqual(verdict(small())[0], "ContextOverflow")

    def test_a_refused_request_says_what_to_do(self):
        for status, words, mend in (
                (404, "model 'smollm2:135m' not found", "`ollama pull smollm2:135m` fetches it"),
                (404, "404 page not found", "set OLLAMA_HOST to where Ollama runs"),
                (400, '"smollm2:135m" does not support thinking', "--think off, or another model"),
                (307, "no words", "set OLLAMA_HOST to the address that it redirects to"),
                (403, "cloud is disabled",
                 "mend what it names, in the model's name, the options or the server's settings")):
            body = "" if words == "no words" else json.dumps({"error": words})
            with self.subTest(status), FakeOllama({"status": status, "body": body}) as server:
                down = refusal(self, small().respond, CASE, 0)
                self.assertEqual((str(down), down.may_return), (
                    f"the server at http://{server.address} refuses the request (HTTP {status}: {words}): {mend}",
                    False))


class ConnectionAndDeadline(unittest.TestCase):

    def test_one_connection_serves_many_trials(self):
        with FakeOllama() as server:
            system = small()
            for trial in range(20):
                system.respond(CASE, trial)
            self.assertEqual((len(server.chats), server.connections), (20, 1))

    def test_a_connection_that_the_server_closed_meanwhile_is_opened_again_before_sending(self):
        with FakeOllama(usual={"after": "close"}) as server:
            system = small()
            for trial in range(5):
                system.respond(CASE, trial)
                while server.open:      # until the stand-in has closed its end
                    time.sleep(0.001)
            self.assertEqual([chat["options"]["seed"] for chat in server.chats], [1000, 1001, 1002, 1003, 1004])

    def test_an_announced_close_is_honoured(self):
        with FakeOllama(usual={"headers": {"Connection": "close"}, "after": "close"}) as server:
            system = small()
            self.assertEqual([verdict(system)[0] for _ in range(5)], ["Answer"] * 5)
            self.assertEqual(len(server.chats), 5)

    def test_a_server_that_comes_back_at_the_same_place_is_used_again(self):
        with FakeOllama() as server:
            system = small()
            system.respond(CASE, 0)
            server.stop()
            self.assertTrue(refusal(self, system.respond, CASE, 1).may_return)
            server.start()
            self.assertEqual(system.respond(CASE, 1).output, GOOD)

    def test_a_chunked_answer_and_one_that_ends_with_the_connection(self):
        unsized = b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps(chat_body()).encode()
        with FakeOllama({"chunked": True}, {"raw": unsized, "after": "close"}):
            system = small()
            self.assertEqual([verdict(system)[0] for _ in range(2)], ["Answer", "Answer"])

    def test_the_deadline_holds_however_slowly_bytes_drip(self):
        replies = (("no byte", HANG), ("head", {"drip": 0.02}), ("body", {"body": " " * 2000, "drip": 0.001}),
                   ("chunks", {"chunked": True, "body": " " * 2000, "drip": 0.001}), ("half an answer", {"cut": 150, "after": "hang"}))

        def late(trial):
            system = small(timeout_s=0.3)
            system.server_version = "0.33.0"
            try:
                system.respond(CASE, trial)
            except TimeoutError as error:
                return str(error), error.metadata
        with FakeOllama(usual=lambda request, number: replies[request["body"]["options"]["seed"] - 1000][1]), ThreadPoolExecutor(5) as pool:
            for (name, _), trial, got in zip(replies, range(5), list(pool.map(late, range(5)))):
                self.assertEqual(got, ("no whole answer within 0.3 s", {
                    "seed": 1000 + trial, "temperature": 1.0, "server_version": "0.33.0", "timeout_s": 0.3,
                    "after_prime": False, "tries": 1}), name)

    def test_a_whole_value_and_white_space_up_to_the_limit_is_an_answer(self):
        for reply, got in (("{}", "Answer"), ("{} \n\n", "Answer"), ("12 ", "Answer"), ("12", "TruncatedReply"), ("{", "TruncatedReply"),
                           ("{} {", "TruncatedReply"), ("", "TruncatedReply"), (" \n", "TruncatedReply"), ("tru", "TruncatedReply")):
            with self.subTest(reply), FakeOllama({"body": chat_body(reply, done_reason="length")}):
                self.assertEqual(verdict(small())[0], got)
        with FakeOllama({"body": chat_body("[1]", done_reason="length")}):
            self.assertEqual(verdict(small().asking(asked("{input}")))[0], "TruncatedReply")

    def test_an_answer_that_comes_byte_by_byte_is_an_answer(self):
        with FakeOllama({"drip": 0}):
            self.assertEqual(verdict(small())[0], "Answer")

    def test_a_connection_that_breaks_or_talks_nonsense(self):
        start = b"HTTP/1.1 200 OK\r\n"
        for name, reply in (("nothing", {"cut": 0}), ("part of the head", {"cut": 30}),
                            ("part of the body", {"cut": 150}),
                            ("part of the chunks", {"cut": 250, "chunked": True}),
                            ("reset", {"cut": 0, "after": "reset"}),
                            ("reset in the body", {"cut": 150, "after": "reset"}),
                            ("no HTTP", {"raw": b"SSH-2.0-OpenSSH\r\n", "after": "close"}),
                            ("a bad status", {"raw": b"HTTP/1.1 abc\r\n\r\n"}),
                            ("endless headers", {"raw": start + b"A: b\r\n" * 200}),
                            ("a long line", {"raw": start + b"A: " + b"b" * 70000}),
                            ("a bad chunk", {"raw": start + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"}),
                            ("a chunk over all memory", {"raw": start + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n"}),
                            ("a chunk over most memory", {"raw": start + b"Transfer-Encoding: chunked\r\n\r\nfffffffffff\r\n"}),
                            ("an absurd length", {"raw": start + b"Content-Length: 99999999999999999999\r\n\r\n"}),
                            ("no content", {"status": 204, "body": ""})):
            with self.subTest(name), FakeOllama(reply):
                system = small()
                got, metadata = verdict(system)
                self.assertEqual((got, metadata["seed"]), ("BadReply", 1000))
                self.assertEqual(verdict(system)[0], "Answer")      # whose bytes are not the broken one's

    def test_an_answer_without_an_end_is_no_answer(self):
        with FakeOllama({"raw": b"HTTP/1.0 200 OK\r\n\r\n" + b" " * 20_000, "after": "close"}), mock.patch.object(model_triage, "MOST_BYTES", 10_000):
            got, metadata = verdict(small())
            self.assertEqual((got, metadata["seed"]), ("BadReply", 1000))

    def test_a_dead_server_costs_one_trial(self):
        with FakeOllama({"cut": 0}) as server:
            system = small()
            self.assertEqual(verdict(system)[0], "BadReply")
            server.stop()
            down = refusal(self, system.respond, CASE, 1)
            self.assertEqual((str(down), down.may_return), (
                f"no Ollama server at http://{server.address} (connection refused): "
                "start it with `ollama serve`, or set OLLAMA_HOST to where it runs", True))
            self.assertEqual(len(server.chats), 1)

    def test_after_a_broken_exchange_the_version_is_asked_before_the_next_trial(self):
        for reply, timeout_s in (({"cut": 0}, 30), (HANG, 0.2)):
            with self.subTest(reply), FakeOllama(reply) as server:
                system = small(timeout_s=timeout_s)
                verdict(system)
                system.timeout_s = 30
                self.assertEqual([verdict(system)[0] for _ in range(2)], ["Answer"] * 2)
                self.assertEqual([path.removeprefix("/api/") for path in server.paths],
                                 ["version", "chat", "version", "tags", "ps", "chat", "chat"])

    def test_a_kept_connection_that_ends_as_it_is_used_is_no_dead_server(self):
        with FakeOllama() as server:
            server.others["/api/version"] = {"cut": 0, "after": "reset"}
            real = model_triage.Server.ask

            def ask(self, method, path, *rest):
                try:
                    return real(self, method, path, *rest)
                finally:
                    server.others["/api/version"] = {"body": {"version": "0.33.0"}}
            with mock.patch.object(model_triage.Server, "ask", ask):
                self.assertEqual(model_triage.Server().version(), "0.33.0")

    def test_a_server_that_has_become_something_else_stops_the_run(self):
        with FakeOllama({"cut": 0}) as server:
            system = small()
            verdict(system)
            server.others["/api/version"] = {"body": "<html>Router</html>"}
            self.assertFalse(refusal(self, system.respond, CASE, 1).may_return)

    def test_threads_share_the_connections(self):
        with FakeOllama(usual={"delay": 0.01}) as server:
            system = small()
            system.check_model()
            with ThreadPoolExecutor(8) as pool:
                outputs = list(pool.map(lambda trial: system.respond(CASE, trial).output, range(80)))
            self.assertEqual(outputs, [GOOD] * 80)
            self.assertLessEqual(server.connections, 8)

    def test_close_ends_calls_in_flight_at_once(self):
        for name, reply in (("waiting", HANG), ("reading", {"drip": 0.05}), ("pausing", {"status": 503})):
            with self.subTest(name), FakeOllama(*[reply] * 2) as server:
                system = small()
                system.pauses_s = (60,)
                with ThreadPoolExecutor(2) as pool:
                    calls = [pool.submit(verdict, system) for _ in range(2)]
                    while len(server.chats) < 2:
                        time.sleep(0.001)
                    started = time.monotonic()
                    system.close()
                    self.assertEqual([call.result()[0] for call in calls], ["SystemDown"] * 2)
                self.assertLess(time.monotonic() - started, 30)     # the pause would be twice that
                self.assertEqual(verdict(system)[0], "Answer")      # a later call starts afresh


class BusyServer(unittest.TestCase):

    def test_a_busy_server_is_asked_again(self):
        for status in (429, 502, 503, 504):
            with self.subTest(status), FakeOllama({"status": status}, {"status": status}) as server:
                self.assertEqual((small().respond(CASE, 0).metadata["tries"], len(server.chats)), (3, 3))

    def test_a_server_that_stays_busy_stops_the_run(self):
        with FakeOllama(usual={"status": 503, "body": {"error": "server busy, please try again."}}) as server:
            down = refusal(self, small().respond, CASE, 0)
            self.assertEqual((str(down), down.may_return), (
                f"the server at http://{server.address} is busy (HTTP 503: server busy, please try again.; "
                "asked 3 times): wait until it has time", True))

    def test_pauses_grow_and_end(self):
        pauses = model_triage.PAUSES_S
        self.assertEqual((sorted(pauses), sum(pauses) < 30), (list(pauses), True))

    def test_a_pause_that_would_outlast_the_deadline_is_not_begun(self):
        with FakeOllama(usual={"status": 503}) as server:
            system = small(timeout_s=5)
            system.pauses_s = (10,)
            self.assertTrue(refusal(self, system.respond, CASE, 0).may_return)
            self.assertEqual(len(server.chats), 1)

    def test_the_deadline_covers_all_tries(self):
        def usual(request, number):
            skip(29.5)
            return HANG if number else {"status": 503}
        with FakeOllama(usual=usual), skipping_time() as skip:
            got, metadata = verdict(small(timeout_s=30))
            self.assertEqual((got, metadata["tries"]), ("TimeoutError", 2))


class Preflight(unittest.TestCase):

    def assert_down(self, server, message, may_return=False, system=None):
        down = refusal(self, (system or small()).check_model)
        message = message.replace("SERVER", f"http://{server.address}")
        self.assertEqual((str(down), down.may_return), (message, may_return))

    def test_the_probe_is_a_trials_request_for_a_few_tokens(self):
        with FakeOllama() as server:
            system = small(options={"top_k": 20}, think="low")
            system.check_model()
            system.respond({"input": system.probe_message}, 0)
            probe, trial = server.chats
            self.assertEqual(probe.pop("options"), {**trial.pop("options"), "num_predict": 16})
            self.assertEqual(probe, trial)
            for limit, asked_for in ((9, 9), (-1, 16)):
                small(options={"num_predict": limit}).check_model()
                self.assertEqual(server.chats[-1]["options"]["num_predict"], asked_for)

    def test_a_server_that_is_not_ollama(self):
        for reply, brought in (({"status": 404, "body": "404 page not found"}, 'HTTP 404, "404 page not found"'),
                               ({"body": "<html>"}, 'HTTP 200, "<html>"'),
                               ({"status": 301, "body": ""}, 'HTTP 301, "no words"')):
            with FakeOllama() as server:
                server.others["/api/version"] = reply
                self.assert_down(server, f"SERVER is not an Ollama server: GET /api/version brought {brought}: "
                                 "set OLLAMA_HOST to where Ollama runs")

    def test_a_server_without_a_version_or_models(self):
        for path, lacks in (("/api/version", "names no version"), ("/api/tags", "lists no models")):
            with FakeOllama() as server:
                server.others[path] = {"body": {"hello": "world"}}
                self.assert_down(server, f"SERVER is not an Ollama server: its {path} {lacks}: "
                                 "set OLLAMA_HOST to where Ollama runs")

    def test_a_server_that_does_not_answer(self):
        with FakeOllama() as server, mock.patch.object(model_triage, "ASK_TIMEOUT_S", 0.1):
            server.others["/api/version"] = HANG
            self.assert_down(server, "SERVER does not answer GET /api/version (no whole answer in time): "
                             "restart the server with `ollama serve`", True)

    def test_a_model_that_is_not_installed(self):
        pull = "`ollama pull smollm2:1.7b` fetches it"
        for models, hint in ((DIGESTS, f'; did you mean "smollm2:135m"? If not: {pull}'), ({}, f": {pull}; installed: none"),
                             ({"llama3:8b": "ab" * 32}, f": {pull}; installed: llama3:8b")):
            with FakeOllama(models=models) as server:
                self.assert_down(server, f'the server at SERVER has no model "smollm2:1.7b"{hint}',
                                 system=ModelTriage("smollm2:1.7b"))

    def test_names_are_compared_as_the_server_compares_them(self):
        with FakeOllama(models={"Qwen3:latest": "ab" * 32}):
            for tag in ("qwen3", "QWEN3:latest", "library/qwen3", "registry.ollama.ai/library/qwen3:latest"):
                self.assertEqual(ModelTriage(tag).model, f"{tag.lower()}@abababababab")

    def test_a_server_that_fails_is_no_other_server(self):
        for path in ("/api/version", "/api/tags"):
            with FakeOllama() as server:
                server.others[path] = {"status": 500, "body": {"error": "disk"}}
                self.assert_down(server, f"the server at SERVER fails to answer GET {path} (HTTP 500: disk): "
                                 "see its log, or restart it with `ollama serve`", True)

    def test_another_digest_than_the_pinned_one(self):
        with FakeOllama(models={"gemma4:e2b": "ab" * 32}) as server:
            self.assert_down(server, "gemma4:e2b is pinned to b37049369adf, the server has abababababab: "
                             "`ollama pull gemma4:e2b` may bring the pinned one; "
                             "--system model_triage:gemma4:e2b measures the installed one",
                             system=ModelTriage("gemma4:e2b", "b37049369adf"))
            self.assertEqual(server.chats, [])

    def test_a_model_that_was_exchanged_under_the_run(self):
        with FakeOllama() as server:
            system = small()
            system.check_model()
            new = {"name": "smollm2:135m", "digest": "sha256:" + "ab" * 32}
            server.others["/api/tags"] = {"body": {"models": [new]}}
            self.assert_down(server, "smollm2:135m was fd5f44c0b5af when this began, the server now has "
                             "abababababab: put the old model back, or measure the new one as a run of its own",
                             system=system)

    def test_a_pinned_model_that_is_installed_is_ready(self):
        with FakeOllama():
            ModelTriage("gemma4:e2b", "b37049369adf").check_model()

    def test_an_option_that_the_server_cannot_use_comes_to_light(self):
        words = 'option "top_k" must be of type integer'
        with FakeOllama({"status": 500, "body": {"error": words}}) as server:
            self.assert_down(server, f"the server cannot run smollm2:135m with these options ({words}): "
                             "mend what it names, or see the server's log")

    def test_a_schema_that_the_server_cannot_use_comes_to_light(self):
        with FakeOllama({"status": 400, "body": {"error": "JSON schema conversion failed"}}) as server:
            self.assert_down(server, "the server at SERVER refuses the request "
                             "(HTTP 400: JSON schema conversion failed): mend what it names, in the model's name, the options or the server's settings")

    def test_a_context_that_holds_not_even_a_short_message(self):
        words = "request (230 tokens) exceeds the available context size (64 tokens)"
        with FakeOllama({"status": 400, "body": {"error": words}}) as server:
            self.assert_down(server, f"not even a short message fits the context ({words}): raise num_ctx")

    def test_a_probe_that_gets_no_answer(self):
        with FakeOllama({"cut": 0}) as server:
            self.assert_down(server, "smollm2:135m does not answer a probe (the connection broke before the whole "
                             "answer was there (Remote end closed connection without response)): "
                             "see the server's log, and restart it with `ollama serve`", True)

    def test_loading_a_model_has_a_longer_deadline_than_a_trial(self):
        with FakeOllama(usual=lambda request, number: skip(40) or {}) as server, skipping_time() as skip:
            system = small(timeout_s=30)
            system.check_model()
            self.assertEqual(len(server.chats), 1)

    def test_what_the_server_does_not_say_is_left_out(self):
        with FakeOllama() as server:
            system = small()
            system.check_model()
            self.assertEqual(system.server_facts(), {"quantization_level": "Q4_1", "parameter_size": "134.52M",
                                                     "context_length": 4096, "gpu_percent": 25})
            bare = {"name": "smollm2:135m", "digest": DIGESTS["smollm2:135m"]}
            server.others |= {"/api/tags": {"body": {"models": [bare]}}, "/api/ps": {"status": 404, "body": ""}}
            system.check_model()
            self.assertEqual(system.server_facts(), {})


class Priming(unittest.TestCase):

    def seen(self, server):
        """The chats that the stand-in saw: [(the case's id or "probe", "warm" or the trial's number)]."""
        cases = {case["input"]: case["id"] for case in CASES}
        return [(cases.get(chat["messages"][1]["content"], "probe"),
                 "warm" if chat["options"]["num_predict"] in (1, 16) else chat["options"]["seed"] - 1000)
                for chat in server.chats]

    def test_every_start_sees_exactly_probe_primed_case_trials(self):
        for place, primed in ((0, "late-order"), (1, "charged-twice"), (7, "charged-after-closing"),
                              (8, "charged-after-closing"), (9, "late-order"), (16, "charged-after-closing")):
            with self.subTest(place), FakeOllama() as server:
                system = small()
                system.check_model()
                system.prime(CASES[place % 9:] + CASES[:place % 9])
                plan = [(case, trial) for trial in range(2) for case in CASES][place:]
                told = [verdict(system, case, trial)[1] for case, trial in plan]
                after = [metadata["after_prime"] for metadata in told if metadata]
                sent = [(case["id"], trial) for case, trial in plan if "expect" in case]
                self.assertEqual(self.seen(server), [("probe", "warm"), (primed, "warm"), *sent])
                self.assertEqual(after, [True] + [False] * (len(sent) - 1))

    def test_the_primed_request_is_the_trials_but_for_its_length(self):
        with FakeOllama() as server:
            system = small()
            system.prime([CASE])
            system.respond(CASE, 0)
            primed, trial = server.chats
            self.assertEqual(primed.pop("options"), {**trial.pop("options"), "num_predict": 1})
            self.assertEqual(primed, trial)

    def test_nothing_to_prime_sends_nothing(self):
        with FakeOllama() as server:
            small().prime([])
            small().prime([BY_ID["blank-message"], BY_ID["missing-body"]])
            self.assertEqual(server.requests, [])

    def test_a_prompt_that_did_not_fit_left_the_cache_to_the_one_before(self):
        with FakeOllama({"status": 400, "body": {"error": "exceeds the available context size"}}) as server:
            small().prime([BY_ID["stuck-tracking"], CASE])
            self.assertEqual(self.seen(server), [("charged-twice", "warm"), ("stuck-tracking", "warm")])

    def test_a_primed_request_that_fails_is_the_trials_matter(self):
        for reply in ({"status": 500}, {"cut": 0}, {"body": chat_body(done=False)}):
            with self.subTest(reply), FakeOllama(reply) as server:
                system = small()
                system.prime([BY_ID["stuck-tracking"], CASE])
                self.assertEqual(verdict(system)[0], "Answer")
                self.assertEqual(self.seen(server), [("charged-twice", "warm"), ("charged-twice", 0)])

    def test_priming_a_server_that_is_away_stops_the_run(self):
        with FakeOllama() as server:
            server.stop()
            self.assertTrue(refusal(self, small().prime, [CASE]).may_return)


class Confirming(InFolder):
    """Every logged trial is proven to be of the pinned model."""
    mine, other = DIGESTS["smollm2:135m"], "ab" * 32
    development = harness.load_cases(CASE_FILE, triage_task)

    def repointed_before(self, row, other_is_loaded):
        """(the SystemDown, the stand-in) of a run under which the tag gets another model before a row of the plan, or at its end."""
        planned = [case for _ in range(10) for case in CASES][:row]
        last = sum("expect" in case for case in planned) + 1       # its chat's number: the probe and the primed one come before

        def usual(request, number):
            if number == last:
                server.repoint("smollm2:135m", self.other)
            return {}
        with FakeOllama(usual=usual) as server, mock.patch("os.fsync"):
            if other_is_loaded:
                server.loaded = [{"name": "other:1b", "digest": self.other}]
            down = refusal(self, bench.run_bench, small(), self.development, ["development"], 10, self.log)
        return down, server

    def test_a_tag_that_gets_another_model_stops_the_run_before_a_trial_of_it_is_logged(self):
        for row in (1, 45, 89, 90):
            for other_is_loaded in (False, True):
                with self.subTest(row=row, other_is_loaded=other_is_loaded):
                    self.log.unlink(missing_ok=True)
                    down, server = self.repointed_before(row, other_is_loaded)
                    self.assertEqual((str(down), down.may_return), (
                        "smollm2:135m was fd5f44c0b5af when this began, the server now has abababababab: "
                        "put the old model back, or measure the new one as a run of its own", False))
                    rows = self.rows()
                    # Where the list of loaded models proves nothing, the trial in which it happened goes too.
                    at = max(place for place in range(row) if "expect" in CASES[place % 9])
                    self.assertEqual(len(rows), at if other_is_loaded else row)
                    told = {row["metadata"].get("digest") for row in rows if "reply" in row["metadata"]}
                    self.assertEqual(told, {self.mine[:12]} if rows else set())
                    self.assertLessEqual(server.answered.count(self.other), 1)

    def test_the_stopped_run_resumes_with_the_old_model(self):
        self.repointed_before(45, False)
        with FakeOllama(), mock.patch("os.fsync"):
            counts = bench.run_bench(small(), self.development, ["development"], 10, self.log)
        self.assertEqual((counts["already_logged"], counts["ran"]), (45, 45))

    def test_a_server_that_is_another_on_an_idle_connection_gets_no_trial(self):
        with FakeOllama() as server:
            system = small()
            system.check_model()
            harness.attempt(system, CASE, 0)
            server.stop()
            server.repoint("smollm2:135m", self.other)
            server.loaded = []
            server.start()
            down = refusal(self, harness.attempt, system, CASE, 1)
            self.assertIn("was fd5f44c0b5af when this began, the server now has abababababab", str(down))
            self.assertEqual(len(server.chats), 2)

    def test_a_row_says_the_digest_and_the_version_that_answered(self):
        with FakeOllama() as server:
            system = small()
            told = []
            for version in ("0.33.0", "0.34.1"):
                server.others["/api/version"] = {"body": {"version": version}}
                told += [harness.attempt(system, CASE, trial)["metadata"] for trial in range(2)]
                server.stop()
                server.start()
            self.assertEqual([(one["digest"], one["server_version"]) for one in told],
                             [(self.mine[:12], version) for version in ("0.33.0", "0.33.0", "0.34.1", "0.34.1")])
            self.assertEqual([path.removeprefix("/api/") for path in server.paths],
                             ["version", "chat", "ps", "tags", "chat", "ps", "version", "tags", "ps", "chat", "ps", "chat", "ps"])

    def test_what_is_asked_beside_a_trial_is_in_no_latency(self):
        with FakeOllama({}, {"cut": 0}) as server:
            responses = [harness.attempt(system, CASE, trial, clock=lambda: len(server.requests))
                         for system in [small()] for trial in range(4)]
        self.assertEqual([response["latency_s"] for response in responses], [1] * 4)
        self.assertEqual([response["metadata"].get("digest") for response in responses], [self.mine[:12]] * 4)
        self.assertEqual(responses[1]["error"]["types"][0], "BadReply")

    def test_a_server_that_cannot_tell_what_is_loaded_is_asked_what_is_installed(self):
        with FakeOllama() as server:
            server.others["/api/ps"] = {"status": 404, "body": "404 page not found"}
            system = small()
            system.check_model()
            server.requests.clear()
            for trial in range(2):
                self.assertEqual(harness.attempt(system, CASE, trial)["metadata"]["digest"], self.mine[:12])
            self.assertEqual([path.removeprefix("/api/") for path in server.paths], ["chat", "ps", "tags", "chat", "tags"])

    def test_what_the_list_of_loaded_models_proves(self):
        mine, other = ({"name": "smollm2:135m", "digest": digest} for digest in (self.mine, self.other))
        alias, undigested = {"name": "other:1b", "digest": self.mine}, {"name": "smollm2:135m"}
        for loaded, proves in (([mine], True), ([mine, alias], True), ([{**mine, "name": "SmolLM2:135M"}], True), ([], False),
                               ([alias], False), ([undigested], False), ([mine, mine], False), ([mine, other], False),
                               ([other, alias], False), ([mine, {**other, "name": "other:1b"}], False), ([other], None)):
            with self.subTest(loaded), FakeOllama() as server:
                system = small()
                system.check_digest()
                server.others["/api/ps"] = {"body": {"models": loaded}}
                if proves is None:
                    self.assertIn("the server now has abababababab", str(refusal(self, system.is_loaded)))
                else:
                    self.assertEqual(system.is_loaded(), proves)

    def test_an_answer_that_cannot_be_proven_is_no_trial_and_a_broken_one_is(self):
        for replies, ended in (((), True), (({"cut": 0},), False)):
            with FakeOllama(*replies) as server:
                system = small()
                verdict(system)
                server.stop()
                if ended:
                    self.assertTrue(refusal(self, system.confirm).may_return)
                else:
                    self.assertEqual(system.confirm(), {})


class WorthlessModels(InFolder):
    """A model whose replies can never be graded is told of by the probe, in the run, and at its end."""
    fenced = "```json\n" + json.dumps(GOOD) + "\n```"
    empty = {"message": {"thinking": "Money, so billing."}}
    # (what every reply is, settings, what the probe's warning says, what the calls end as and the setting to change)
    table = (
        (chat_body(fenced), {}, "the reply is fenced in Markdown, though a schema was sent: try another model, or a newer Ollama",
         "JSONDecodeError: the last reply is fenced in Markdown, though a schema was sent: try another model, or a newer Ollama"),
        (chat_body("Sure! It is about"), {}, "the reply is prose, though a schema was sent: try another model, or a newer Ollama",
         "JSONDecodeError: the last reply is prose, though a schema was sent: try another model, or a newer Ollama"),
        (chat_body(" \n"), {}, "the reply is empty: try --think on --option num_predict=2048, or another model",
         "JSONDecodeError: the last reply is empty: try --think on --option num_predict=2048, or another model"),
        (chat_body("", **empty), {}, "it thinks although think is off, and says nothing: try --think on --option num_predict=2048, or another model",
         "EmptyReply: try --think on --option num_predict=2048, or another model"),
        (chat_body("", **empty, done_reason="length", eval_count=16), {"think": "on"},
         "it was still thinking after 16 tokens, and num_predict 64 has to hold the answer too: try --option num_predict=2048, or --think off",
         "TruncatedReply: try --option num_predict=2048, or --think off"),
        (chat_body('{"category": "bil', done_reason="length"), {}, None, "TruncatedReply: try --option num_predict=256, or another model"))

    def test_all_fenced_all_empty_all_cut(self):
        for body, settings, doubt, ended in self.table:
            with self.subTest(ended), FakeOllama(usual={"body": body}), mock.patch("os.fsync"):
                self.log.unlink(missing_ok=True)
                warnings = []
                counts = bench.run_bench(small(**settings), Confirming.development, ["development"], 2, self.log, warn=warnings.append)
                self.assertEqual(counts["ran"], 18)
                self.assertEqual(warnings, [f"the probe of smollm2:135m: {doubt}"] * (doubt is not None) + [
                    f"none of 5 model calls could be graded, all ended as {ended}; the run goes on (--stop-if-hopeless would end it)"])

    def test_the_command_says_it_and_returns_what_was_asked_for(self):
        with FakeOllama(usual={"body": chat_body(self.fenced)}):
            for words, status, ran in (((), 0, 18), (("--stop-if-hopeless",), 1, 5)):
                got, out, err = called(bench, "--model", "smollm2:135m", "--trials", "2", "--log", self.folder / f"{status}.jsonl", *words)
                self.assertEqual((got, err.count("\n"), f"ran {ran}," in out), (status, 2, True), err)
                self.assertIn(f"none of {14 if ran == 18 else 5} model calls could be graded, all ended as JSONDecodeError: the last reply is fenced", re.sub(r"\n  ", " ", out))

    def test_a_reply_that_begins_well_gives_no_cause_for_doubt(self):
        for body, settings in ((chat_body('{"cat', done_reason="length"), {}), (chat_body(" \n[1"), {}), (chat_body("true"), {}), (chat_body("-1"), {}),
                               (chat_body("", **self.empty), {"think": "on", "options": {"num_predict": 2048}}),
                               (chat_body(**self.empty), {"think": "max"})):
            with self.subTest(body["message"]), FakeOllama({"body": body}):
                system = small(**settings)
                system.check_model()
                self.assertEqual(system.warnings, [])

    def test_prose_is_no_fault_where_no_schema_was_sent(self):
        with FakeOllama({"body": chat_body("```python")}):
            system = small().asking(asked("{input}"))
            system.check_model()
            self.assertEqual(system.warnings, [])

    def test_a_model_that_cannot_think_is_told_of_before_it_is_loaded(self):
        with FakeOllama() as server:
            for capabilities, told in ((["completion"], True), (["completion", "thinking"], False), (None, False)):
                server.listed[0]["capabilities"] = capabilities
                if told:
                    self.assertEqual(str(refusal(self, small(think="max").check_model)),
                                     "smollm2:135m cannot think, as the server says: --think off, or another model")
                    self.assertEqual(server.chats, [])
                    small().check_model()
                else:
                    system = small(think="max")
                    system.check_model()
                    self.assertEqual((server.chats[-1]["think"], system.warnings), (
                        "max", ["the probe of smollm2:135m: think is on, and it answered without thinking: see whether this model can think"]))

    def test_the_advice_for_each_end(self):
        system = small(options={"num_predict": -1})
        self.assertEqual([system.advice(name) for name in ("TruncatedReply", "ContextOverflow", "TimeoutError", "OutputError")], [
            "try --option num_ctx=8192, or another model", "try --option num_ctx=8192", "try --timeout-s 600, or a smaller model", None])
        for name in CHAT_VERDICTS:
            self.assertEqual(system.advice(name) is None, name in ("Answer", "SystemDown"), name)


class KeepAlive(InFolder):
    """A model stays loaded through a run, or the rows say which trials had to load it."""
    development = harness.load_cases(CASE_FILE, triage_task)

    def run_on(self, server, trials=2, **settings):
        """The metadata of the model calls of a run, on a stand-in whose loads take a second."""
        server.cold = 10 ** 9
        with server, mock.patch("os.fsync"):
            bench.run_bench(small(**settings), self.development, ["development"], trials, self.log, task=triage_task)
        return [row["metadata"] for row in self.rows() if "reply" in row["metadata"]]

    def test_a_server_that_keeps_nothing_of_its_own_accord_is_told_to(self):
        server = FakeOllama()
        server.keep_alive = 0
        rows = self.run_on(server)
        self.assertEqual([row.get("reloaded") for row in rows], [None] * 14)
        self.assertEqual({chat["keep_alive"] for chat in server.chats}, {"30m"})
        self.assertEqual(bench.read_log(self.log)[0]["keep_alive"], "30m")

    def test_where_it_is_to_keep_nothing_every_trial_is_primed(self):
        server = FakeOllama()
        rows = self.run_on(server, keep_alive="0")
        self.assertEqual([(row["after_prime"], row.get("reloaded")) for row in rows], [(True, None)] * 14)
        self.assertEqual([chat["keep_alive"] for chat in server.chats], ["30m"] + ["30m", 0] * 14)
        self.assertEqual([chat["messages"] for chat in server.chats[3::2]], [chat["messages"] for chat in server.chats[2:-1:2]])
        self.assertEqual(bench.read_log(self.log)[0]["keep_alive"], "0")

    def test_a_reload_that_cannot_be_known_before_is_said_in_the_row_and_counted(self):
        server = FakeOllama()
        server.forgets = True
        rows = self.run_on(server)
        self.assertEqual([row.get("reloaded") for row in rows], [True] * 14)
        status, out, err = called(report, self.log)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("note: 14 model calls had to load the model, which can change an answer\n", out)

    def test_a_model_that_was_unloaded_meanwhile_is_primed_before_the_next_trial(self):
        with FakeOllama() as server, skipping_time() as skip:
            server.cold = 10 ** 9
            system = small()
            system.check_model()
            told = []
            for trial in range(3):
                told.append(harness.attempt(system, CASE, trial)["metadata"])
                if trial == 0:
                    server.loaded = []
                skip(11)
        self.assertEqual([(one["after_prime"], one.get("reloaded")) for one in told], [(True, None), (True, None), (False, None)])

    def test_a_server_that_came_back_is_primed_and_a_model_that_is_never_listed_is_not(self):
        for listed in (True, False):
            with FakeOllama() as server:
                system = small()
                system.check_model()
                if not listed:
                    server.others["/api/ps"] = {"body": {"models": []}}
                harness.attempt(system, CASE, 0)
                server.stop()
                server.loaded = []
                server.start()
                told = [harness.attempt(system, CASE, trial)["metadata"]["after_prime"] for trial in (1, 2)]
                self.assertEqual(told, [listed, False])

    def test_another_time_is_another_setting_and_no_other_plan(self):
        for given, sent in (("1h30m", "1h30m"), ("-1", -1), ("600", 600), ("0s", "0s"), ("1.5h", "1.5h")):
            with FakeOllama() as server:
                system = small(keep_alive=given)
                system.respond(CASE, 0)
                self.assertEqual((server.chats[0]["keep_alive"], harness.system_identity(system)), (sent, harness.system_identity(small())))
        for given in ("30 m", "", "m", "1d", "1.5", "--1"):
            with self.assertRaises(RunError) as caught:
                small(keep_alive=given)
            self.assertEqual(str(caught.exception), f'keep_alive is "{given}": it takes a time such as 30m or 1h30m, a number of seconds, or -1 for ever')
        for words, message in ((("--model", "m", "--keep-alive", "x"), 'error: --keep-alive is "x": it takes a time such as'),
                               (("--command", "true", "--keep-alive", "5m"), "error: --keep-alive is Ollama's: a command has no such setting"),
                               (("--keep-alive", "5m"), "error: bayes has no options to set: --option, --think, --timeout-s and --keep-alive are")):
            self.assertIn(message, called(bench, *words)[2])


class Settings(unittest.TestCase):

    def test_options_are_read_by_their_types(self):
        given = {"temperature": "0.7", "num_predict": "-1", "num_ctx": "8192", "top_k": "40", "top_p": ".9",
                 "min_p": "1e-2", "use_mmap": "false", "repeat_penalty": "1", "stop": "END"}
        system = small(options=given, think="high", timeout_s=600)
        self.assertEqual(system.options, {
            "temperature": 0.7, "num_predict": -1, "num_ctx": 8192, "think": "high", "top_k": 40, "top_p": 0.9,
            "min_p": 0.01, "use_mmap": False, "repeat_penalty": 1.0, "stop": ["END"]})
        with FakeOllama() as server:
            system.respond(CASE, 1)
            chat, = server.chats
        options = {**system.options, "seed": 1001}
        self.assertEqual((chat["think"], chat["options"]), (options.pop("think"), options))

    def test_equal_settings_give_equal_identities(self):
        for left, right in (({"temperature": "1"}, {}), ({"temperature": "-0"}, {"temperature": 0.0}),
                            ({"top_k": "+7"}, {"top_k": 7}), ({"stop": "a"}, {"stop": '["a"]'})):
            self.assertEqual(*(harness.canonical(small(options=options).options) for options in (left, right)))

    def test_a_system_so_set_is_a_new_one(self):
        gemma = model_triage.gemma
        system = gemma.configured({"temperature": "0"}, "on", 5)
        self.assertEqual((system.model, system.timeout_s, system.options), (
            gemma.model, 5.0, {"temperature": 0.0, "num_predict": 64, "num_ctx": 4096, "think": True}))
        self.assertEqual((gemma.timeout_s, gemma.options), (
            120.0, {"temperature": 1.0, "num_predict": 64, "num_ctx": 4096, "think": False}))

    def test_the_timeout_is_no_part_of_the_identity(self):
        self.assertEqual(harness.system_identity(model_triage.gemma.configured(timeout_s=7)),
                         harness.system_identity(model_triage.gemma))

    def test_settings_that_ollama_has_not_are_refused(self):
        for options, message in (
                ({"temprature": "1"}, 'unknown option "temprature"; did you mean "temperature"?'),
                ({"zzz": "1"}, 'unknown option "zzz"'),
                ({"seed": "7"}, "option seed is set by the plan: trial t has seed 1000 + t"),
                ({"temperature": "hot"}, 'option temperature is "hot": it takes a number from 0 up'),
                ({"temperature": "nan"}, 'option temperature is "nan": it takes a number from 0 up'),
                ({"temperature": "-1"}, 'option temperature is "-1": it takes a number from 0 up'),
                ({"temperature": "1e99"}, 'option temperature is "1e99": it takes a number from 0 up'),
                ({"temperature": 10 ** 400}, f"option temperature is 1{'0' * 400}: it takes a number from 0 up"),
                ({"presence_penalty": "inf"}, 'option presence_penalty is "inf": it takes a number'),
                ({"top_p": "1.1"}, 'option top_p is "1.1": it takes a number from 0 to 1'),
                ({"top_k": "4.5"}, 'option top_k is "4.5": it takes a whole number from 0 up'),
                ({"top_k": True}, "option top_k is true: it takes a whole number from 0 up"),
                ({"num_predict": "0"}, 'option num_predict is "0": it takes a whole number from 1 up, or -1'),
                ({"num_ctx": "1_000"}, 'option num_ctx is "1_000": it takes a whole number from 1 up'),
                ({"use_mmap": "1"}, 'option use_mmap is "1": it takes true or false'),
                ({"stop": ""}, 'option stop is "": it takes a text, or a JSON list of texts such as ["END"]'),
                ({"stop": "[1]"}, 'option stop is "[1]": it takes a text, or a JSON list of texts such as ["END"]')):
            with self.subTest(options), self.assertRaises(RunError) as caught:
                small(options=options)
            self.assertEqual(str(caught.exception), message)

    def test_a_think_setting_or_timeout_that_makes_no_sense_is_refused(self):
        for settings, message in (
                ({"think": "hihg"}, 'think is "hihg", not one of off, on, low, medium, high, max; did you mean "high"?'),
                ({"timeout_s": 0}, "timeout_s is 0: it takes a number of seconds over 0, at most 86400"),
                ({"timeout_s": 1e6}, "timeout_s is 1000000.0: it takes a number of seconds over 0, at most 86400")):
            with self.subTest(settings), self.assertRaises(RunError) as caught:
                small(**settings)
            self.assertEqual(str(caught.exception), message)


# Whole runs against the stand-in

class OllamaRuns(InFolder):
    loaded = harness.load_cases(CASE_FILE, triage_task)

    def bench_run(self, system, trials=2, **options):
        return bench.run_bench(system, self.loaded, ["development"], trials, self.log, **options)

    def texts(self, server):
        """The messages that the server saw, with a num_predict of 1 or 16 marked as not a trial."""
        return [("warm" if chat["options"]["num_predict"] in (1, 16) else chat["options"]["seed"], chat["messages"][1]["content"])
                for chat in server.chats]

    def test_every_invocation_sends_probe_primed_case_and_trials(self):
        inputs = [case["input"] for case in harness.plan(self.loaded, ["development"], 1)]
        sent = [text for text in inputs if isinstance(text, str) and text.strip()]
        trials = [(1000 + trial, text) for trial in (0, 1) for text in sent]
        with FakeOllama() as server:
            self.bench_run(small())
            self.assertEqual(self.texts(server)[0][0], "warm")
            self.assertEqual(self.texts(server)[1:], [("warm", sent[-1]), *trials])
            lines = self.log.read_bytes().splitlines(keepends=True)
            for kept in range(18):
                self.log.write_bytes(b"".join(lines[:1 + kept]))
                server.requests.clear()
                self.bench_run(small())
                logged = len([row for row in self.rows()[:kept] if "reply" in row["metadata"]])
                primed = (trials[logged - 1][1] if logged else sent[-1])
                self.assertEqual(self.texts(server)[1:], [("warm", primed), *trials[logged:]], f"{kept} rows kept")
                first = [row["metadata"]["after_prime"] for row in self.rows()[kept:] if "reply" in row["metadata"]]
                self.assertEqual(first, [True, *[False] * (len(first) - 1)][:len(first)])

    def test_a_server_that_dies_costs_one_trial_and_the_same_command_resumes(self):
        def usual(request, number):
            if number == 9:
                threading.Thread(target=server.stop).start()
                return {"delay": 0.2, "cut": 0}
            return {}
        with FakeOllama(usual=usual) as server:
            with self.assertRaises(SystemDown) as caught:
                self.bench_run(small())
            self.assertEqual([row["error"]["types"][0] for row in self.rows() if "error" in row and "reply" not in row["metadata"]
                              and row["error"]["types"][0] != "Rejection"], ["BadReply"])
            self.assertIn("start it with `ollama serve`", str(caught.exception))
            logged = len(self.rows())
            server.stop()
            server.usual = {}
            server.start()
            self.assertEqual(self.bench_run(small())["already_logged"], logged)
            self.assertEqual(len(set(self.keys())), 18)

    def test_an_unattended_run_waits_for_the_server_to_come_back(self):
        def usual(request, number):
            if number == 9 and not came_back.is_set():
                threading.Thread(target=away).start()
                return {"delay": 0.2, "cut": 0}
            return {}

        def away():
            server.stop()
            time.sleep(0.3)
            came_back.set()
            server.start()
        came_back = threading.Event()
        with FakeOllama(usual=usual) as server, mock.patch.object(bench, "WAIT_PAUSE_S", 0.05):
            self.assertEqual(self.bench_run(small(), wait_s=60)["ran"], 18)
            self.assertTrue(came_back.is_set())
        self.assertEqual(len(set(self.keys())), 18)

    def test_another_option_think_setting_or_digest_is_another_plan_and_sends_nothing(self):
        with FakeOllama() as server:
            self.bench_run(small())
            server.requests.clear()
            for system, key in ((small(options={"top_k": "5"}), "system.options.top_k is null in the log, 5 now"),
                                (small(think="on"), "system.options.think is false in the log, true now")):
                self.assert_refused(key, self.bench_run, system)
            server.others["/api/tags"]["body"]["models"][0]["digest"] = "0" * 64
            self.assert_refused('system.model is "smollm2:135m@fd5f44c0b5af" in the log, "smollm2:135m@000000000000" now', self.bench_run, small())
            self.assertEqual(server.chats, [])
            self.assertEqual(self.bench_run(ModelTriage("smollm2:135m", "fd5f44c0b5af").configured(timeout_s=3))["already_logged"], 18)

    def test_the_case_of_a_tag_makes_no_other_plan_and_the_server_gets_its_own_spelling(self):
        with FakeOllama(models={"Tiny:1B": "ab" * 32}) as server:
            self.bench_run(ModelTriage("tiny:1b"))
            self.assertEqual({chat["model"] for chat in server.chats}, {"Tiny:1B"})
            self.assertEqual(self.bench_run(ModelTriage("TINY:1b"))["already_logged"], 18)
            older = self.log.read_bytes().replace(b'"tiny:1b', b'"Tiny:1B')
            self.log.write_bytes(older)
            self.assertEqual(self.bench_run(ModelTriage("tiny:1B"), wait_s=0)["already_logged"], 18)
            new = self.folder / "new.jsonl"
            self.assertEqual(bench.run_bench(ModelTriage("tiny:1b"), self.loaded, ["development"], 2, new, sources=[self.log])["ran"], 0)
            self.log.write_bytes(older.replace(b"@abababababab", b"@cdcdcdcdcdcd"))
            self.assert_refused('system.name is "Tiny:1B" in the log, "tiny:1b" now', self.bench_run, ModelTriage("tiny:1b"))

    def test_the_header_tells_what_the_server_says_of_the_model(self):
        with FakeOllama():
            self.bench_run(small())
        self.assertEqual(bench.read_log(self.log)[0]["environment"]["server"],
                         {"quantization_level": "Q4_1", "parameter_size": "134.52M", "context_length": 4096, "gpu_percent": 25})

    def test_a_thousand_trials_with_a_fifth_of_faults_end_exactly_once_each(self):
        faults = [{"status": 500}, {"cut": 60}, {"after": "reset", "cut": 0}, {"cut": 0}, {"body": "not JSON"},
                  {"body": chat_body('{"categ', done_reason="length")}, {"body": chat_body("no", done=False, done_reason=None)},
                  {"body": chat_body("maybe")}, {"status": 503}, {"raw": b"HTTP/1.1 2000 What\r\n\r\n", "after": "close"}]

        def usual(request, number):
            return faults[number // 5 % len(faults)] if number % 5 == 4 else {}
        with FakeOllama(usual=usual), mock.patch("os.fsync"):       # the disk's own speed is no matter of this test
            counts = self.bench_run(small(), trials=112, workers=4)
        self.assertEqual((counts["ran"], counts["not_run"]), (1008, 0))
        keys = self.keys()
        self.assertEqual((len(keys), len(set(keys))), (1008, 1008))
        errors = {row["error"]["types"][0] for row in self.rows() if "error" in row}
        self.assertEqual(errors, {"Rejection", "ServerError", "BadReply", "TruncatedReply", "UnfinishedReply", "JSONDecodeError"})

    def test_the_command_names_the_mend_when_there_is_no_server_or_no_model(self):
        with FakeOllama() as server:
            self.assertEqual(self.in_folder(bench, "--model", "smolm2:135m"), (
                1, "", f'error: the server at http://{server.address} has no model "smolm2:135m"; did you mean "smollm2:135m"? '
                       'If not: `ollama pull smolm2:135m` fetches it\n'))
            status, _, err = self.in_folder(bench, "--model", "smollm2:135m", "--trials", "2", "--option", "temperature=0")
            self.assertEqual((status, err), (0, "warning: the temperature is 0: the seed changes nothing, so all trials of a "
                                                "case are one trial; --option temperature=1\n"))
            self.assertTrue((self.folder / "runs" / "smollm2-135m.jsonl").exists())
            server.stop()
            status, out, err = self.in_folder(bench, "--model", "smollm2:135m")
            self.assertEqual((status, out), (1, ""))
            self.assertIn("start it with `ollama serve`", err)


# Tasks of one's own

RECEIPTS = {"name": "receipts", "prompt": "Shop and total of this receipt?\n\n{input}",
            "schema": {"type": "object", "properties": {"shop": {"type": "string"}, "total": {"type": "number"}},
                       "required": ["shop", "total"]},
            "compare": {"shop": "text"},
            "cases": [{"id": "bakery", "input": "BAKERY KLEIN 2 rolls 1.80", "expect": {"shop": "Bakery Klein", "total": 1.8}},
                      {"id": "book", "input": "LEAF & SONS 1 book 12.00", "expect": {"total": 12}},
                      {"id": "blank", "input": " ", "expect_rejection": "message is blank"}]}


class Rerun(InFolder):
    """Logged trials that run again."""
    RECORDED = HERE / "recorded" / "bayes.jsonl"

    def rerun(self, *words):
        """(exit status, lines of stdout, stderr); nothing but stdout is written."""
        before = {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        with contextlib.chdir(self.folder), mock.patch.object(sys, "path", list(sys.path)), mock.patch.object(sys, "dont_write_bytecode", True):
            status, out, err = called(bench, "--rerun", *words)
        self.assertEqual({path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}, before)
        return status, out.splitlines(), err

    def test_the_recorded_demonstration_gives_the_same_outputs_again(self):
        status, lines, err = self.rerun(self.RECORDED)
        self.assertEqual((status, len(lines), lines[-1], err), (0, 91, "identical 90 of 90", ""))
        self.assertEqual(lines[9], "charged-twice  trial 1  seed 1001  identical")

    def test_case_trial_and_sample_choose_what_runs(self):
        self.assertEqual(self.rerun(self.RECORDED, "--case", "late-*", "--trial", "0")[1], [
            "late-order  trial 0  seed 1000  identical", "identical 1 of 1"])
        self.assertEqual(self.rerun(self.RECORDED, "--sample", "4")[1][-1], "identical 4 of 4")
        self.assertEqual(self.rerun(self.RECORDED, "--class", "delivery", "--sample", "400")[1][-1], "identical 20 of 20")
        for words, said in ((("--case", "lat-order"), 'did you mean "late-order"?'), (("--trial", "10"), "it holds no such trial"),
                            (("--trial", "x"), "argument --trial"), (("--log", "x.jsonl"), "argument --log: not allowed with --rerun")):
            status, lines, err = self.rerun(self.RECORDED, *words)
            self.assertTrue(status and not lines and said in err, err)
        self.assertIn("--sample needs --rerun", called(bench, "--sample", "2")[2])
        self.assertIn("--trial needs --rerun", called(bench, "--trial", "0", "--check")[2])

    def test_a_trial_that_differs_is_shown_with_both_outputs_and_verdicts(self):
        lines = [json.loads(line) for line in self.RECORDED.read_text().splitlines()]
        lines[1]["output"] = {"category": "other", "needs_human": True}
        self.write("log.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        self.assertEqual(self.rerun("log.jsonl", "--case", "charged-twice", "--trial", 0), (0, [
            "charged-twice  trial 0  seed 1000  differs",
            '  logged  {"category": "other", "needs_human": true}',
            '          - failed: triage-outcome: category is "other", expected "billing"; needs_human is true, expected false',
            '  now     {"category": "billing", "needs_human": false}',
            "          + passed", "identical 0 of 1"], ""))

    def test_the_message_and_the_raw_reply_are_shown_where_asked_for(self):
        lines = self.rerun(self.RECORDED, "--case", "late-order", "--trial", 0, "--verbose")[1]
        self.assertEqual([line.split("  ")[0] for line in lines], [
            "late-order", "case", "input", "reply", "compared", "", "verdict", "", "identical 1 of 1"])

    def test_a_system_that_only_the_user_can_name_is_asked_for_and_another_one_refused(self):
        self.run_small(task=triage_task)
        self.assertIn('its system "scripted" cannot be made from the log: give it as for the run', self.rerun("log.jsonl")[2])
        self.write("same_systems.py", "from test_bench import Scripted\nsame = Scripted()\nother = Scripted(version='2')\n")
        self.assertEqual(self.rerun("log.jsonl", "--system", "same_systems:same")[1][-1], "identical 6 of 6")
        status, lines, err = self.rerun("log.jsonl", "--system", "same_systems:other")
        self.assertEqual((status, lines, err), (1, [], 'error: log.jsonl: its system is not here: version is "1" in the log, "2" now\n'))

    def test_a_header_without_names_and_a_seed_with_escapes_are_no_way_out(self):
        lines = [json.loads(line) for line in self.RECORDED.read_text().splitlines()]
        lines[1]["metadata"]["seed"] = "\x1b[31m"
        self.write("log.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        self.assertEqual(self.rerun("log.jsonl", "--case", "charged-twice", "--trial", 0)[1], [
            "charged-twice  trial 0  seed \\x1b[31m then, 1000 now  identical", "identical 1 of 1"])
        lines[0]["system"] = {}
        self.write("log.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        status, lines, err = self.rerun("log.jsonl")
        self.assertEqual((status, lines), (1, []))
        self.assertIn("error: log.jsonl: its system null cannot be made from the log", err)

    def test_a_model_is_asked_as_the_log_says_behind_what_came_before(self):
        settings = dict(options={"temperature": "0.5", "top_k": "3"}, timeout_s=7)
        with FakeOllama() as server:
            OllamaRuns.bench_run(self, ModelTriage("smollm2:135m").configured(**settings), task=triage_task)
            whole = server.chats[1:]
            server.requests.clear()
            self.assertEqual(self.rerun("log.jsonl")[1][-1], "identical 18 of 18")
            self.assertEqual(server.chats[1:], whole)
            server.requests.clear()
            self.assertEqual(self.rerun("log.jsonl", "--case", "product-advice", "--trial", 1)[1][-1], "identical 1 of 1")
            self.assertEqual([(chat["options"]["num_predict"], chat["messages"][1]["content"]) for chat in server.chats[-2:]], [
                (chat["options"]["num_predict"] if number else 1, chat["messages"][1]["content"])
                for number, chat in enumerate(whole[-5:-3])])
            self.assertEqual(server.chats[-1], whole[-4])
            server.usual = {"body": chat_body("{}")}
            status, lines, _ = self.rerun("log.jsonl", "--trial", 0, "--case", "late-order")
            self.assertEqual((status, lines[3], lines[-1]), (0, "  now     {}", "identical 0 of 1"))

    def test_another_digest_or_no_server_is_said_before_anything_runs(self):
        with FakeOllama() as server:
            OllamaRuns.bench_run(self, small(), task=triage_task)
            server.requests.clear()
            server.others["/api/tags"]["body"]["models"][0]["digest"] = "0" * 64
            status, lines, err = self.rerun("log.jsonl")
            self.assertEqual((status, lines, server.chats), (1, [], []))
            self.assertIn('model is "smollm2:135m@fd5f44c0b5af" in the log, "smollm2:135m@000000000000" now', err)
        self.assertEqual(self.rerun("log.jsonl")[:2], (1, []))

    loaded = OllamaRuns.loaded


def answering(request, number):
    """The stand-in's reply to a receipt: right but for every third total."""
    text = request["body"]["messages"][-1]["content"]
    shop, total = ("Bakery Klein", 1.8) if "KLEIN" in text else ("Leaf & Sons", 12)
    return {"body": chat_body(json.dumps({"shop": shop, "total": total if number % 3 else 0}))}


class OwnTask(InFolder):
    """Tests in a folder with a task file, beside a stand-in server."""

    def setUp(self):
        super().setUp()
        self.enterContext(contextlib.chdir(self.folder))
        self.server = self.enterContext(FakeOllama(usual=answering))
        self.task()
        self.log = Path("runs/receipts-smollm2-135m.jsonl")

    def task(self, name="receipts.json", **changes):
        """Write the task file with some keys changed."""
        self.write(name, json.dumps({**RECEIPTS, **changes}))

    def expecting(self, case_id, **changes):
        """The cases of the task file with keys of one of them changed."""
        return [{**case, **changes} if case["id"] == case_id else case for case in RECEIPTS["cases"]]

    def bench(self, *words, model="smollm2:135m"):
        """The stdout of a run of bench.py that nothing is wrong with."""
        status, out, err = called(bench, *words, *(("--model", model) if model else ()))
        self.assertEqual((status, err), (0, ""))
        return out

    def refused(self, text, *words, status=1):
        """One line of stderr that holds the text; the server is asked for nothing."""
        asked = len(self.server.requests)
        self.assertEqual((found := called(bench, *words))[:2], (status, ""), found)
        self.assertTrue(found[2].startswith("error: ") and found[2].count("\n") == 1, found[2])
        self.assertIn(text, found[2])
        self.assertEqual(len(self.server.requests), asked)


class ALogThatExplainsItself(OwnTask):
    def report(self, *words):
        return called(report, self.log, *words)

    def begin(self, trials=3):
        self.bench("--task", "receipts.json", "--trials", trials)
        return bench.read_log(self.log)[0]

    def test_the_header_holds_the_cases_the_task_what_was_asked_and_the_command(self):
        header = self.begin()
        task, case_set = harness.load_plan("receipts.json")
        self.assertEqual(header["cases"], case_set["cases"])
        self.assertEqual(header["case_set"], {"name": "receipts", "sha256": case_set["sha256"]})
        self.assertEqual(header["task"], {**harness.task_identity(task), "data": task.definition})
        self.assertEqual(header["asked"], task.asked)
        self.assertEqual(header["command"], ["bench.py", "--task", "receipts.json", "--trials", "3", "--model", "smollm2:135m"])
        self.assertEqual(self.server.chats[-1]["messages"], [{"role": "user", "content": header["asked"]["messages"][0]["content"].replace(
            "{input}", header["cases"][1]["input"])}])

    def test_a_report_needs_neither_file_and_says_when_they_changed(self):
        self.begin()
        status, told, err = self.report()
        self.assertEqual((status, err), (0, ""))
        self.assertIn("3 cases x 3 trials: ", told)
        self.task(cases=self.expecting("book", expect={"total": 13}))
        self.assertEqual(self.report(), (0, told, "warning: runs/receipts-smollm2-135m.jsonl: receipts.json has changed since this log "
                                                  "began: its own cases and checks are used; --regrade takes today's\n"))
        self.task(compare={})
        self.assertIn("receipts.json has changed", self.report()[2])
        self.write("receipts.json", "{")
        self.assertEqual(self.report()[:2], (0, told))
        os.unlink("receipts.json")
        self.assertEqual(self.report(), (0, told, "warning: runs/receipts-smollm2-135m.jsonl: receipts.json: there is no such file here: "
                                                  "its own cases and checks are used; --regrade takes today's\n"))
        self.assertIn('wants total 12', self.report("--failures")[1])

    def test_regrading_takes_the_expectations_of_today_and_only_those(self):
        self.begin()
        passed = lambda *words: re.search("trials: ([0-9]+) passed", self.report(*words)[1])[1]
        self.assertEqual(passed(), "7")
        self.task(cases=[*self.expecting("book", expect={"total": {"at_least": 0}}), {"id": "new", "input": "x", "expect": {"total": 1}}])
        self.assertEqual(passed("--regrade"), "8")
        self.task("other.json", cases=self.expecting("book", expect={"total": 99}))
        self.assertEqual(passed("--regrade", "--task", "other.json"), "5")
        self.assertIn("name no file to use what the log holds, or add --regrade", self.report("--task", "other.json")[2])
        for cases, text in ((self.expecting("book", input="LEAF"), 'the input of case "book" has changed'),
                            (RECEIPTS["cases"][1:], 'receipts has no case "bakery" any more')):
            self.task(cases=cases)
            status, out, err = self.report("--regrade")
            self.assertEqual((status, out), (1, ""))
            self.assertIn(text, err)

    def test_a_stopped_log_tells_the_command_that_resumes_it(self):
        self.begin()
        lines = self.log.read_bytes().splitlines(keepends=True)
        self.log.write_bytes(b"".join(lines[:-2]))
        resume = f"{harness.PYTHON} {HERE / 'bench.py'} --task receipts.json --trials 3 --model smollm2:135m"
        self.assertIn(f"to\nresume:\n  {resume}\n", self.report("--out", "page.html")[1].replace("; to resume", ";\nto\nresume"))
        self.assertIn(f"<bdi>{resume}</bdi>", Path("page.html").read_text(encoding="utf-8"))
        moved = self.log.rename(self.folder / "-a copy.jsonl")
        told = called(report, "./-a copy.jsonl")[1]
        self.assertIn(f"  {resume} --log {harness.in_shell('./-a copy.jsonl')}\n", told)
        words = model_triage.command_words(re.search(f"  {harness.PYTHON} (.*)$", told, re.MULTILINE)[1])
        self.assertIn("already logged 7, ran 2", self.bench(*words[1:], model=None))
        self.assertEqual(len(bench.read_log(moved)[1]), 9)

    def test_a_hostile_header_runs_nothing_and_obeys_no_terminal(self):
        header = self.begin()
        rows = self.log.read_bytes().split(b"\n", 1)[1].rpartition(b"\n{")[0] + b"\n"
        self.write("evil.py", "raise SystemExit('it ran')")

        def hostile(**changes):
            self.log.write_bytes(json.dumps({**header, **changes}).encode() + b"\n" + rows)
            status, out, err = self.report()
            self.assertEqual(err.count("\n") * (status != 0), status and 1, err)
            self.assertNotIn("\x1b", out + err)
            self.assertNotIn("it ran", out + err)
            return out + err
        self.assertIn("  " + harness.in_shell(harness.PYTHON, HERE / "bench.py", "\x1b[2J\n; rm -rf x"), hostile(command=["rm", 3, "\x1b[2J\n; rm -rf x", None]))
        self.assertIn('its checks are the module "evil": give it with --task', hostile(task={**header["task"], "data": None, "module": "evil"}))
        self.assertIn("no such file here", hostile(files={"task": "/dev/zero.json", "cases": ["x"]}))
        self.assertIn("does not say which file its task is from", hostile(files={"task": str(self.folder), "cases": None}))
        for changes in ({"command": "rm"}, {"cases": {}}, {"case_set": {}}, {"label": 3}, {"subset": []}, {"subset": {"words": [1], "of": 3}}, {"files": "x"}, {"asked": 1},
                        {"task": {**header["task"], "data": {"name": "x", "schema": {"type": "?"}}}}, {"cases": [1]}, {"cases": []},
                        {"cases": header["cases"][:2]}, {"cases": [{**header["cases"][0], "input": "y"}, *header["cases"][1:]]},
                        {"task": {**header["task"], "data": {"name": "x", "extract": "(" * 200}}}):
            with self.subTest(changes=changes):
                self.assertIn("error: runs/receipts-smollm2-135m.jsonl: line 1: ", hostile(**changes))
                if "cases" in changes:
                    before = self.log.read_bytes()
                    status, _, err = called(bench, *header["command"][1:])
                    self.assertIn((status, err.count("\n")), ((1, 1), (1, 2)), err)
                    self.assertIn("line 1: ", err)
                    self.assertEqual(self.log.read_bytes(), before)

    def test_a_conversion_refuses_a_header_whose_cases_are_none(self):
        header = self.begin()
        for case in ([], {"id": [1], "class": "x", "split": "development", "input": ""}, {**header["cases"][0], "split": None},
                     {key: header["cases"][0][key] for key in ("id", "class", "split")}):
            self.log.write_bytes(json.dumps({**header, "cases": [case]}).encode() + b"\n")
            with self.subTest(case=case):
                self.assertEqual(called(bench, "--log", self.log, "--convert", "made.json"), (
                    1, "", f"error: {self.log}: line 1: one of the cases is not a case; the file is left as it was: give another --log\n"))

    def test_a_conversion_needs_no_file_either(self):
        self.begin()
        recording = bench.to_recording(self.log, harness.load_plan("receipts.json")[1])
        os.unlink("receipts.json")
        self.assertEqual(called(bench, "--log", self.log, "--convert", "made.json")[0], 0)
        self.assertEqual(harness.read_json("made.json"), recording)
        self.assertEqual(recording["provenance"]["task"], {key: recording["provenance"]["task"][key] for key in ("name", "sha256")})


class NothingByAccident(OwnTask):
    """What a model is asked is said by the task or by the user, or nothing is sent."""

    def setUp(self):
        super().setUp()
        document = json.loads(CASE_FILE.read_text(encoding="utf-8"))
        document["cases"][0]["input"] = "Where is my parcel?"
        self.cases = self.write("edited.json", json.dumps(document))

    def test_the_triage_prompt_goes_with_its_own_cases_alone(self):
        self.refused("nothing says what smollm2:135m is to be asked for the cases of edited.json, and the triage prompt is for triage_task "
                     "and its own cases alone: give a task file (bench.py TASK.json), or --prompt FILE",
                     "--model", "smollm2:135m", "--cases", "edited.json")
        self.write("mine.py", "from triage_task import *\nNAME = 'mine'\n")
        self.refused("is to be asked for the cases of", "--model", "smollm2:135m", "--cases", CASE_FILE, "--task", "mine")
        self.refused("is to be asked for the cases of", "--system", "model_triage:qwen", "--cases", "edited.json")
        self.refused("knows triage_task and its own cases alone, not the cases of edited.json: give a model with --model TAG", "--cases", "edited.json")
        self.refused("knows triage_task and its own cases alone", "receipts.json", "--system", "model_triage:bayes")
        self.refused("give what receipts.json is for: --model TAG, or a program with --command ARGV", "receipts.json", status=2)
        self.assertFalse(Path("runs").exists())

    def test_a_copy_of_its_own_cases_will_do(self):
        shutil.copy(CASE_FILE, "copy.json")
        self.bench("--cases", "copy.json", "--trials", "1")
        self.assertIn("Which of your two tents", str(self.server.chats))
        self.bench("--cases", "copy.json", "--trials", "1", model=None)

    def test_a_prompt_file_replaces_what_is_asked(self):
        self.write("prompt.txt", "Shop?\r\n{input}\n")
        self.write("system.txt", "Be brief.\n")
        self.bench("receipts.json", "--trials", "1", "--prompt", "prompt.txt", "--system-prompt", "system.txt")
        self.assertEqual(self.server.chats[-1]["messages"], [{"role": "system", "content": "Be brief."},
                                                             {"role": "user", "content": "Shop?\nLEAF & SONS 1 book 12.00"}])
        self.assertEqual(self.server.chats[-1]["format"], RECEIPTS["schema"])
        self.bench("--cases", "edited.json", "--trials", "1", "--prompt", "prompt.txt")
        self.assertEqual(self.server.chats[-1]["messages"][0]["content"].partition("\n")[0], "Shop?")
        self.assertNotIn("format", self.server.chats[-1])

    def test_a_prompt_that_goes_with_no_case_is_refused(self):
        for text, told in (("Shop?", "no {input}"), ("{input.shop}", "{input.shop}"), (" ", "the file is empty")):
            self.write("prompt.txt", text)
            self.refused(told, "receipts.json", "--model", "smollm2:135m", "--prompt", "prompt.txt")
        self.refused("bayes takes no prompt", "--prompt", self.write("prompt.txt", "{input}"))
        self.refused("no.txt: No such file", "receipts.json", "--model", "smollm2:135m", "--system-prompt", "no.txt")

    def test_a_task_file_stands_first_or_behind_its_option(self):
        self.assertIn("ran 3", self.bench("receipts.json", "--trials", "1"))
        self.assertIn("already logged 3, ran 0", self.bench("--trials", "1", "--task", "receipts.json"))
        self.refused("the task is given twice, as receipts.json and as x.json", "receipts.json", "--task", "x.json", status=2)


class SomeOfTheCases(OwnTask):
    def header_of(self, name):
        return bench.read_log(Path("runs", name))[0]

    def test_chosen_cases_have_a_log_of_their_own_and_a_report_names_them(self):
        self.bench("receipts.json", "--trials", "2", "--case", "book", "--case", "bl*")
        header = self.header_of("receipts-smollm2-135m+case-book-case-bl-2605a134.jsonl")
        self.assertEqual(header["subset"], {"words": ["--case", "book", "--case", "bl*"], "of": 3})
        self.assertEqual([case["id"] for case in header["cases"]], ["book", "blank"])
        self.assertEqual(header["case_set"], {"name": "receipts", "sha256": header["case_set_sha256"]})
        status, told, _ = called(report, "runs/receipts-smollm2-135m+case-book-case-bl-2605a134.jsonl", "--out", "page.html")
        self.assertIn("\n2 of 3 cases x 2 trials: ", told)
        self.assertIn("note: only the cases of --case book --case 'bl*'\n", told)
        self.assertIn("2 of 3 cases × 2 trials", Path("page.html").read_text(encoding="utf-8"))
        self.assertIn("already logged 4, ran 0", self.bench("receipts.json", "--trials", "2", "--case", "book", "--case", "bl*"))
        self.bench("receipts.json", "--trials", "2", "--first", "1")
        self.assertEqual(self.header_of("receipts-smollm2-135m+first-1.jsonl")["subset"], {"words": ["--first", "1"], "of": 3})
        self.assertFalse(self.log.exists())

    def test_the_three_ways_to_choose_narrow_one_another(self):
        cases = [{**one, "class": kind} for one, kind in zip(RECEIPTS["cases"], ("food", "other", "other"))]
        self.task(cases=cases)
        for words, chosen in ((["--class", "other"], ["book", "blank"]), (["--class", "other", "--first", "1"], ["book"]),
                              (["--case", "b[al]*", "--class", "other"], ["blank"]), (["--case", "b*", "--first", "2"], ["bakery", "book"])):
            _, case_set = harness.load_plan("receipts.json")
            part, subset = bench.chosen_cases(bench.parse_args(["receipts.json", *words]), case_set)
            self.assertEqual(([case["id"] for case in part["cases"]], subset), (chosen, {"words": words, "of": 3}))
        self.assertEqual(bench.chosen_cases(bench.parse_args(["receipts.json", "--first", "9"]), case_set), (case_set, None))

    def test_a_choice_of_nothing_is_refused_with_what_there_is(self):
        for words, text in ((["--case", "boook"], 'argument --case: receipts has no case boook; did you mean "book"?'),
                            (["--class", "x"], "argument --class: receipts has no class x; it has receipts"), (["--first", "0"], "argument --first")):
            self.refused(text, "receipts.json", "--model", "smollm2:135m", *words, status=2)
        held_out = next(case["id"] for case in json.loads(CASE_FILE.read_text(encoding="utf-8"))["cases"] if case["split"] == "held-out")
        self.refused(f"has no case {held_out} but a held-out one", "--case", held_out, status=2)

    def test_a_chosen_part_is_taken_over_by_the_whole(self):
        self.bench("receipts.json", "--trials", "2", "--first", "2")
        self.assertIn("already logged 4, ran 2", self.bench("receipts.json", "--trials", "2", "--from", "runs/receipts-smollm2-135m+first-2.jsonl"))


class LookingBeforeARun(OwnTask):
    def test_trying_shows_each_trial_from_the_message_to_the_verdict_and_logs_nothing(self):
        self.server.usual = lambda request, number: {"body": chat_body(message={"role": "assistant", "content": '{"shop": "X", "total": 18}', "thinking": "Two\x1b rolls"})}
        told = self.bench("receipts.json", "--try", "--case", "bakery", "--case", "blank")
        self.assertEqual(re.sub(r"[0-9.]+ ms", "T", told), f"""\
case      bakery   trial 0, seed 1000, T
user      Shop and total of this receipt?

          BAKERY KLEIN 2 rolls 1.80
thinking  Two\\x1b rolls
reply     {{"shop": "X", "total": 18}}
compared  shop X, wanted "Bakery Klein"
          total 18, wanted 1.8
verdict   - failed: expectation: shop is "X", expected "Bakery Klein"; total is 18, expected 1.8

case      blank   trial 0, seed 1000, T
input
          nothing is sent: message is blank
wanted    must be refused: message is blank
verdict   + passed

tried 2: 1 passed, 1 failed; nothing was logged
run       {harness.PYTHON} {bench.__file__} receipts.json --model smollm2:135m
""")
        self.assertFalse(Path("runs").exists())
        self.assertEqual(self.bench("receipts.json", "--try", "--case", "bakery", "--trials", "2").count("\nuser "), 2)

    def test_trying_shows_a_reply_that_cannot_be_graded(self):
        self.server.usual = lambda request, number: {"body": chat_body("Sure! {")}
        status, told, err = called(bench, "receipts.json", "--try", "--case", "book", "--model", "smollm2:135m")
        self.assertEqual((status, err), (0, "warning: the probe of smollm2:135m: the reply is prose, though a schema was sent: try another "
                                            "model, or a newer Ollama\n"))
        self.assertIn("\nreply     Sure! {\n", told)
        self.assertIn("\nverdict   ! incomplete: JSONDecodeError: ", told)

    def test_on_a_terminal_long_lines_break_at_spaces_and_hang_below_the_text(self):
        lines = bench.under("user", f"Read {'all ' * 20}.\n\nNow.") + ["verdict   + passed"]
        self.assertEqual(bench.hung(lines, bench.Terminal(40, False, bench.ASCII_GLYPHS)), lines)
        self.assertEqual(bench.hung(lines, bench.Terminal(60, False, bench.ASCII_GLYPHS, 24)), [
            "user      Read all all all all all all all all all all all",
            "            all all all all all all all all all .", "", "          Now.", "verdict   + passed"])

    def test_a_run_says_what_to_change_where_some_calls_could_not_be_graded(self):
        self.server.usual = lambda request, number: {"body": chat_body("Sure", done_reason="length")} if number % 2 else {}
        told = self.bench("receipts.json", "--trials", "3")
        self.assertRegex(told, r"\n\n[1-9] of 6 model calls ended as TruncatedReply: try --option num_predict=256, or(\n  | )another\s+model\nlog ")

    def test_trying_needs_the_server_and_takes_any_system(self):
        self.server.stop()
        status, out, err = called(bench, "receipts.json", "--model", "smollm2:135m", "--try")
        self.assertEqual((status, out, err.count("\n")), (1, "", 1))
        self.assertIn("\ninput     Hi, I ordered", "\n" + self.bench("--try", "--first", "1", model=None).replace("case ", "", 1))

    def test_checking_asks_no_server_and_shows_the_first_request(self):
        told = self.bench("receipts.json", "--check", "--option", "temperature=0.5", model=None)
        self.assertEqual(self.server.requests, [])
        for line in ("receipts: 3 cases, nothing wrong", "case      bakery", "user      Shop and total of this receipt?", "          BAKERY KLEIN 2 rolls 1.80",
                     "format    " + json.dumps(RECEIPTS["schema"]), "think     false", 'wanted    shop "Bakery Klein", total 1.8',
                     'options   {"temperature": 0.5, "num_predict": 64, "num_ctx": 4096, "seed": 1000}',
                     f"try       {harness.PYTHON} {bench.__file__} receipts.json --option temperature=0.5 --model TAG --try"):
            self.assertIn(line + "\n", told)
        self.assertNotIn("\nmodel ", told)
        self.assertIn("\nmodel     smollm2:135m\n", self.bench("receipts.json", "--check"))
        self.task(cases=RECEIPTS["cases"][:1] * 2)
        self.refused("bakery", "receipts.json", "--check")

    def test_what_a_program_reads_and_what_another_server_is_sent_are_shown_too(self):
        words = ("receipts.json", "--check", "--first", "1")
        self.assertIn("\nuser      Shop and total of this receipt?\n", self.bench(*words, "--command", "cat", model=None))
        told = self.bench(*words, "--url", "http://127.0.0.1:1/v1", model="company:small")
        self.assertIn("\nmodel     company:small\n", told)
        self.assertIn("\nresponse_format {", told)

    def test_checking_says_when_there_is_something_to_see(self):
        self.task(cases=[*RECEIPTS["cases"], {**RECEIPTS["cases"][1], "id": "again"}])
        status, out, err = called(bench, "receipts.json", "--check")
        self.assertEqual((status, out.partition("\n")[0], err), (
            0, "receipts: 4 cases, see the warnings", "warning: case book and case again have the same input\n"))

    def test_two_ways_to_look_are_one_too_many(self):
        self.refused("argument --try: not allowed with argument --check", "receipts.json", "--try", "--check", status=2)


class Stumbles(OwnTask):
    """What is easily written wrong gets the words that are right."""

    def test_a_model_in_the_wrong_place(self):
        for words, text in ((["llama3.2:3b"], "llama3.2:3b is no task file (their names end in .json): --model llama3.2:3b measures a model"),
                            (["-m", "llama3.2:3b"], "unrecognized arguments: -m; did you mean --model?"),
                            (["runs/x.jsonl"], "python3 report.py runs/x.jsonl reports a log"), (["cases.csv"], "--cases cases.csv reads cases"),
                            (["my_task.py"], "--task my_task names a module"), (["receipts"], "did you mean receipts.json?"),
                            (["receipts.json", "other.json"], "unrecognized arguments: other.json; one task is run at a time")):
            self.refused(text, *words, status=2)

    def test_a_sampling_option_in_the_wrong_place(self):
        for words, text in ((["--temperature", "0"], "--option temperature=0"), (["--num-predict=300"], "--option num_predict=300"),
                            (["--num-ctx", "--trials", "3"], "--option num_ctx=VALUE"), (["--top_k"], "--option top_k=VALUE"),
                            (["-n", "3"], "did you mean --trials?"), (["--modell", "x"], 'did you mean "--model"')):
            self.refused(text, *words, status=2)

    def test_a_misspelt_model_gets_the_one_that_is_there_before_the_pull(self):
        told = called(bench, "receipts.json", "--model", "smolm2:135m")[2]
        self.assertIn('has no model "smolm2:135m"; did you mean "smollm2:135m"? If not: `ollama pull smolm2:135m` fetches it\n', told)
        self.assertIn("`ollama pull other:1b` fetches it; installed: smollm2:135m", called(bench, "receipts.json", "--model", "other:1b")[2])

    def test_a_report_of_no_log_lists_those_that_are_there(self):
        self.assertEqual(called(report), (2, "", "error: name the log to report; there is none in runs/ yet: python3 bench.py writes one\n"))
        self.bench("receipts.json", "--trials", "1")
        lines = self.log.read_bytes().splitlines(keepends=True)
        Path("runs/-half.jsonl").write_bytes(b"".join(lines[:-1]))
        Path("runs/longer.jsonl").write_bytes(b"".join(lines) + b'{"plan": {"trials": 2, "at": "2026-01-01"}}\n' + lines[1][:-2])
        Path("runs/other.jsonl").write_text("{}\n")
        Path("runs/torn.jsonl").write_bytes(lines[0][:-9])
        for number, name in enumerate((self.log, "runs/-half.jsonl", "runs/longer.jsonl")):
            os.utime(name, (1000000000 + 60 * number,) * 2)
        written = [time.strftime("%Y-%m-%d %H:%M", time.localtime(1000000000 + 60 * number)) for number in (2, 1, 0)]
        listed = "".join(f"{when}  {state}  smollm2:135m  {name}\n" for when, state, name in zip(written, ("3 of 6", "2 of 3", "done  "), (
            "runs/longer.jsonl", "runs/-half.jsonl", self.log)))
        self.assertEqual(called(report), (2, listed, "error: name the log to report\n"))
        self.bench("receipts.json", "--trials", "1", "--label", "terse")
        self.assertIn("  done    smollm2:135m terse  runs/receipts-smollm2-135m-terse.jsonl\n", called(report)[1])
        Path("runs/receipts-smollm2-135m-terse.jsonl").unlink()
        self.assertEqual(called(report, "runs/receipt-smollm2-135m.jsonl", "--failures"), (
            1, listed, f'error: runs/receipt-smollm2-135m.jsonl: No such file or directory; did you mean "{self.log}"?\n'))

    def test_a_list_tells_the_models_and_which_logs_they_go_on_with(self):
        self.bench("receipts.json", "--trials", "1")
        lines = self.log.read_bytes().splitlines(keepends=True)
        Path("runs/half.jsonl").write_bytes(b"".join(lines[:-1]))
        Path("runs/other.jsonl").write_bytes(lines[0].replace(DIGESTS["smollm2:135m"][:12].encode(), b"0" * 12))
        for number, name in enumerate((self.log, "runs/half.jsonl", "runs/other.jsonl")):
            os.utime(name, (1000000000 - number,) * 2)
        self.server.listed[:] = [{**self.server.listed[0], "size": 91739413},
                                 {"name": "big\x1b:70b", "digest": "sha256:" + "c" * 64, "size": 42520413916, "details": {"quantization_level": "Q4_K_M"}},
                                 {"name": "odd:1b", "digest": 3, "size": "x", "details": None}]
        digest = DIGESTS["smollm2:135m"][:12]
        status, out, err = called(bench, "--list")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(out.split("\n\n")[1], f"""\
http://{self.server.address}, Ollama 0.33.0
model            size  quantisation  digest
smollm2:135m    92 MB  Q4_1          {digest}
  {self.log} is done
  resumes runs/half.jsonl (2 of 3)
  runs/other.jsonl is of another digest, 000000000000
big\\x1b:70b   42.5 GB  Q4_K_M        cccccccccccc
odd:1b              ?  ?             ?
""")
        self.assertEqual([request["path"] for request in self.server.requests[-2:]], ["/api/version", "/api/tags"])

    def test_a_list_needs_no_server(self):
        bench.run_bench(harness.load_system("model_triage:bayes", None), harness.load_cases(CASE_FILE, triage_task), ["development"], 1, "runs/b.jsonl")
        status, out, err = called(bench, "--list", "--host", "127.0.0.1:1", "--host", "a b")
        self.assertEqual((status, err), (0, ""))
        told = " ".join(out.split())
        self.assertIn("--system model_triage:bayes bayes 4bf543270e33 runs/b.jsonl is done --system model_triage:gemma gemma4:e2b b37049369adf ", told)
        self.assertIn(" no models: no Ollama server at http://127.0.0.1:1 (connection refused): start it with `ollama serve`", told)
        self.assertIn(" no models: OLLAMA_HOST is \"a b\", which cannot work", told)
        for words, text in ((["--model", "m"], "--model"), (["--check"], "--check"), (["x.json"], "TASK.json"), (["--log", "x"], "--log")):
            self.refused(f"argument {text}: not allowed with argument --list", "--list", *words, status=2)

    def test_help_fits_80_columns_and_begins_with_examples(self):
        for name in ("bench.py", "report.py", "harness.py"):
            lines = script(name, "--help", env={"COLUMNS": "80"}).stdout.splitlines()
            self.assertLessEqual(max(map(len, lines)), 80, name)
            self.assertTrue(any(line.startswith(f"    python3 {name}") for line in lines[:8]), lines)

    def test_a_fault_in_a_module_of_ones_own_tells_its_line(self):
        self.write("crashing.py", "import sys\nprint('half way', file=sys.stderr)\n\ndef broken(case_set):\n    return case_set['x']\n\n"
                                  "class System:\n    name = version = mode = model = prompt = 'x'\n    tools = []\n    def check_model(self):\n"
                                  "        raise ValueError('no key')\n    def respond(self, case, trial):\n        pass\n\nwhole = System()\n")
        self.write("unfinished.py", "import os\n1 / 0\n")
        for spec, told in (("crashing:broken", "half way\nerror: system crashing:broken cannot be made: KeyError: 'x' (crashing.py, line 5)\n"),
                           ("crashing:whole", "half way\nerror: check_model of x raised ValueError: no key (crashing.py, line 11)\n"),
                           ("unfinished:x", "error: system unfinished cannot be imported: ZeroDivisionError: division by zero (unfinished.py, line 2)\n")):
            done = script("bench.py", "receipts.json", "--system", spec, cwd=self.folder)
            self.assertEqual((done.returncode, done.stderr), (1, told))


class LogsOfTheFirstVersion(InFolder):
    loaded = harness.load_cases(CASE_FILE, triage_task)

    def test_they_are_resumed_in_their_own_format(self):
        old = (HERE / "recorded" / "bayes-stopped.jsonl").read_bytes()
        self.log.write_bytes(old)
        bayes = harness.load_system("model_triage:bayes", self.loaded)
        counts = bench.run_bench(bayes, self.loaded, ["development"], 10, self.log, task=triage_task)
        self.assertEqual((counts["already_logged"], counts["not_run"]), (52, 0))
        self.assertTrue(self.log.read_bytes().startswith(old))
        header, rows = bench.read_log(self.log)
        self.assertEqual({tuple(row) for row in rows}, {("case_id", "trial", "started_at", "latency_s", "metadata", key) for key in ("output", "error")})
        whole, resumed = (bench.to_recording(log, self.loaded) for log in (HERE / "recorded" / "bayes.jsonl", self.log))
        self.assertEqual(outputs_sha256(whole), outputs_sha256(resumed))
        self.assertEqual(list(resumed["provenance"]), ["task", "environment"])

    def test_their_recordings_have_the_bytes_that_they_always_had(self):
        for name, digest in (("bayes", "80c8e7df7d401f5c46c5f09d2d99763c250d0f8dfe647fdbeeb4cc893ea8bcf4"),
                             ("bayes-stopped", "0068cd6df52f239e7b18f2a3060927862e839216431eeb7ed9a9f9a5cb85e1e5"),
                             ("gemma3-270m-pt-q4_k_m", "c5776fc7a29ac236be6bb041ee204fc40f0c0c2f09e394ea14cff5caf55ea304"),
                             ("smollm2-135m-instruct-q4_1-stopped", "fddd3a07b2aac333c9f57ff8d5bc34845fdc5c3fa40b13953cc0f020fb5a158c")):
            recording = bench.to_recording(HERE / "recorded" / f"{name}.jsonl", self.loaded)
            self.assertEqual(harness.sha256(json.dumps(recording, indent=2) + "\n"), digest, name)

    def test_they_are_taken_over_by_a_log_of_today(self):
        old = HERE / "recorded" / "bayes.jsonl"
        bayes = harness.load_system("model_triage:bayes", self.loaded)
        counts = bench.run_bench(bayes, self.loaded, ["development"], 11, self.log, task=triage_task, sources=[old])
        self.assertEqual((counts["already_logged"], counts["ran"]), (90, 9))
        self.assertEqual(bench.read_log(self.log)[0]["bench_version"], "2")

    def test_they_are_graded_anew_with_other_expectations_of_the_same_inputs(self):
        document = json.loads(CASE_FILE.read_text(encoding="utf-8"))
        document["cases"][0]["expect"] = {"category": "account"}
        edited = self.write("edited.json", json.dumps(document))
        log = HERE / "recorded" / "bayes.jsonl"
        self.assertIn("its case set", called(report, log, "--cases", edited)[2])
        self.assertIn("2/10", re.search("charged-twice .*", called(report, log, "--cases", edited, "--regrade")[1])[0])
        document["cases"][0]["input"] = "x"
        edited.write_text(json.dumps(document))
        self.assertIn('the input of case "charged-twice" has changed', called(report, log, "--cases", edited, "--regrade")[2])


class SeveralServers(InFolder):
    loaded = harness.load_cases(CASE_FILE, triage_task)

    def setUp(self):
        super().setUp()
        self.servers = [self.enterContext(FakeOllama()) for _ in range(3)]
        self.urls = [f"http://{server.address}" for server in self.servers]

    def run_at(self, servers=3, trials=7, workers=None, **options):
        """The counts of a run at so many servers, a worker each."""
        first, *also = small().at([server.address for server in self.servers[:servers]])
        for system in (first, *also):
            system.pauses_s = (0.01,)
        self.warnings = []
        return bench.run_bench(first, self.loaded, ["development"], trials, self.log, also=also, workers=workers or servers,
                               warn=self.warnings.append, task=triage_task, **options)

    def trials_at(self, server):
        """The (seed, text) of the trials that a server was asked."""
        return [(chat["options"]["seed"], chat["messages"][1]["content"]) for chat in server.chats if chat["options"]["num_predict"] == 64]

    def test_each_server_runs_whole_rounds_in_order_and_a_row_says_which_answered(self):
        self.assertEqual(self.run_at()["ran"], 63)
        rows = bench.read_log(self.log)[1]
        told = {(row["case_id"], row["trial"]): row["metadata"]["host"] for row in rows if "reply" in row["metadata"]}
        self.assertEqual(set(told.values()), set(self.urls))
        self.assertEqual({row["metadata"]["workers"] for row in rows}, {1})
        for server, url in zip(self.servers, self.urls):
            asked = self.trials_at(server)
            self.assertEqual(len(asked), sum(host == url for host in told.values()))
            self.assertEqual({seed for seed, _ in asked[:7]}, {asked[0][0]})        # a round of its own first
        self.assertEqual(sum(len(self.trials_at(server)) for server in self.servers), 49)
        self.assertEqual(bench.read_log(self.log)[0]["environment"]["server"]["hosts"], self.urls)
        made = report_on(self.log)
        self.assertIn("note: the trials differ in server: http://127.0.0.1:", made.out)

    def test_another_digest_or_a_missing_server_is_told_before_the_first_trial(self):
        self.servers[1].others["/api/tags"] = {"body": {"models": [{"name": "smollm2:135m", "digest": "0" * 64}]}}
        self.assert_refused(f'{self.urls[0]} and {self.urls[1]} do not have the same system: system.model is "smollm2:135m@fd5f44c0b5af" there, '
                            .replace("system.model", "model"), self.run_at)
        self.servers[2].stop()
        with self.assertRaises(SystemDown) as caught:
            first, also = small().at([self.servers[0].address, self.servers[2].address])
            bench.run_bench(first, self.loaded, ["development"], 2, self.log, also=[also], workers=2)
        self.assertIn(self.urls[2], str(caught.exception))
        self.assertEqual([self.trials_at(server) for server in self.servers], [[], [], []])
        self.assertFalse(self.log.exists())

    def test_one_that_goes_away_costs_its_workers_only(self):
        def usual(request, number):
            if number == 5:
                threading.Thread(target=lambda: (self.servers[1].stop(), gone.set())).start()
                return HANG
            return {}
        gone = threading.Event()
        self.servers[1].usual = usual
        self.servers[0].usual = self.servers[2].usual = lambda request, number: {} if number < 4 or gone.wait(20) else {}
        self.assertEqual(self.run_at()["ran"], 63)
        self.assertEqual(len({(row["case_id"], row["trial"]) for row in bench.read_log(self.log)[1]}), 63)
        lost = [text for text in self.warnings if "the run goes on at the other 2 servers" in text]
        self.assertEqual(len(lost), 1)
        self.assertTrue(lost[0].startswith(self.urls[1]), lost)

    def test_one_that_only_fails_is_left_as_well(self):
        def usual(request, number):
            failed.release()
            return {"cut": 0} if request["body"]["options"]["num_predict"] == 64 else {}
        failed = threading.Semaphore(0)
        self.servers[1].usual = usual
        # The others wait until it has failed as often as it may, a probe and a prime apart.
        self.servers[0].usual = lambda request, number: {} if number != 4 or all(failed.acquire(timeout=20) for _ in range(7)) else {}
        self.servers[2].usual = lambda request, number: {} if number < 4 or self.servers[0].chatted > 5 else {"delay": 0.02}
        self.assertEqual(self.run_at()["ran"], 63)
        errors = [row["metadata"]["host"] for row in bench.read_log(self.log)[1] if "error" in row and "reply" not in row["metadata"]
                  and row["error"]["types"][0] != "Rejection"]
        self.assertEqual(errors, [self.urls[1]] * 5)
        self.assertIn("5 trials in a row had no reply of the model", "".join(self.warnings))

    def test_when_all_are_gone_the_run_stops_and_the_same_command_resumes(self):
        def ending(server):
            def usual(request, number):
                if number == 6:
                    stopping.append(threading.Thread(target=server.stop))
                    stopping[-1].start()
                return HANG if number > 5 else {}
            return usual
        stopping = []
        for server in self.servers[:2]:
            server.usual = ending(server)
        with self.assertRaises(SystemDown) as caught:
            self.run_at(2)
        self.assertIn("start it with `ollama serve`", str(caught.exception))
        logged = len(bench.read_log(self.log)[1])
        for thread, server in zip(stopping, self.servers):
            thread.join()
            server.usual = {}
        for server in self.servers[:2]:
            server.start()
        self.assertEqual(self.run_at(2)["already_logged"], logged)
        self.assertEqual(len(bench.read_log(self.log)[1]), 63)

    def test_a_swapped_model_at_one_of_them_stops_the_run(self):
        def usual(request, number):
            if number == 6:
                swapped = {"models": [{"name": "smollm2:135m", "digest": "0" * 64}]}
                self.servers[1].others.update({"/api/tags": {"body": swapped}, "/api/ps": {"body": swapped}})
            return {}
        self.servers[1].usual = usual
        with self.assertRaises(SystemDown) as caught:
            self.run_at(trials=40)
        self.assertIn("the server now has 000000000000", str(caught.exception))

    def test_the_command_takes_hosts_and_a_list_and_a_worker_for_each(self):
        hosts = [word for server in self.servers[:2] for word in ("--host", server.address)]
        model = ("--model", "smollm2:135m", "--trials", "2")
        for words in (hosts, []):
            with mock.patch.dict(os.environ, {} if words else {"OLLAMA_HOST": ", ".join(server.address for server in self.servers[:2])}):
                status, _, err = self.in_folder(bench, *model, *words, "--log", f"{len(words)}.jsonl")
            self.assertEqual((status, err), (0, ""))
            told = {row["metadata"].get("host") for row in bench.read_log(self.folder / f"{len(words)}.jsonl")[1]} - {None}
            self.assertEqual(told, set(self.urls[:2]))
        for words, text in (((*hosts, "--workers", "1"), "1 for 2 servers leave some without work"), (hosts[:2] * 2, "is given twice"),
                            (("--host", "::x"), "is no host")):
            status, _, err = self.in_folder(bench, *model, *words)
            self.assertTrue(status and text in err and err.count("\n") == 1, err)
        self.assertIn("argument --host: bayes is no model of an Ollama server", called(bench, "--host", "a")[2])
        self.assertEqual(self.in_folder(bench, *model, *hosts[:2])[0], 0)
        self.assertNotIn("host", bench.read_log(self.folder / "runs" / "smollm2-135m.jsonl")[1][0]["metadata"])


class SeveralModels(InFolder):
    WORDS = ("--model", "smollm2:135m", "--model", "gemma4:e2b", "--trials", "1")

    def command(self, *words):
        return self.in_folder(bench, *words)

    def test_they_run_one_after_the_other_each_into_its_log_and_the_last_line_compares_them(self):
        with FakeOllama() as server:
            status, out, err = self.command(*self.WORDS)
            self.assertEqual((status, err), (0, ""))
            self.assertEqual(re.findall(r"^(\S+): planned 9, already logged 0, ran 9, not run 0$", out, re.MULTILINE), ["smollm2:135m", "gemma4:e2b"])
            asked = [chat["model"] for chat in server.chats]
            self.assertEqual([model for model, _ in itertools.groupby(asked)], ["smollm2:135m", "gemma4:e2b", "smollm2:135m", "gemma4:e2b"])
            last = out.splitlines()[-1]
            self.assertEqual(last, f"compare {harness.PYTHON} {HERE / 'report.py'} runs/smollm2-135m.jsonl runs/gemma4-e2b.jsonl")
            server.requests.clear()
            self.assertIn("already logged 9, ran 0", self.command(*self.WORDS)[1])
            self.assertEqual(server.chats, [])
        self.assertEqual(self.in_folder(report, *shlex.split(last)[3:])[0], 0)

    def test_all_are_checked_before_the_first_trial(self):
        with FakeOllama() as server:
            for words in ((*self.WORDS, "--model", "llama9"), (*self.WORDS, "--think", "on")):
                server.usual = lambda request, number: {"status": 400, "body": {"error": "does not support thinking"}} \
                    if request["body"]["think"] and request["body"]["model"] == "gemma4:e2b" else {}
                status, out, err = self.command(*words)
                self.assertEqual((status, out, err.count("\n")), (1, "", 1))
                self.assertRegex(err, "no model \"llama9:latest\"|--think off, or another model")
                self.assertFalse(any(chat["options"]["num_predict"] == 64 for chat in server.chats))
            self.assertEqual(list(self.folder.glob("runs/*")), [])
            (self.folder / "runs").mkdir(exist_ok=True)
            self.write("runs/gemma4-e2b.jsonl", "no log")
            self.assertEqual(self.command(*self.WORDS)[:2], (1, ""))
            self.assertFalse((self.folder / "runs" / "smollm2-135m.jsonl").exists())

    def test_one_that_is_lost_costs_its_own_trials_only(self):
        def usual(request, number):
            return {"status": 404, "body": {"error": "model 'x' not found"}} if request["body"]["options"]["seed"] == 1000 and \
                request["body"]["options"]["num_predict"] == 64 and request["body"]["model"] == "smollm2:135m" else {}
        with FakeOllama(usual=usual):
            status, out, err = self.command(*self.WORDS)
        self.assertEqual(status, 1)
        self.assertTrue(err.startswith("error: smollm2:135m: the server at ") and err.endswith("; then the same command resumes\n"), err)
        self.assertIn("gemma4:e2b: planned 9, already logged 0, ran 9, not run 0", out)

    def test_what_only_one_run_can_have_is_refused_and_so_is_a_model_twice(self):
        for words in (("--log", "x.jsonl"), ("--from", "x.jsonl"), ("--convert", "x.json"), ("--try",), ("--check",)):
            status, _, err = called(bench, *self.WORDS, *words)
            self.assertEqual((status, err), (2, f"error: argument {words[0]}: not allowed with more than one --model\n"))
        with FakeOllama():
            status, _, err = self.command(*self.WORDS, "--model", "smollm2:135m")
        self.assertEqual(status, 2)
        self.assertIn("smollm2:135m and smollm2:135m are one model or have one log, runs/smollm2-135m.jsonl", err)


# The report

PLAIN = bench.Terminal(80, False, bench.ASCII_GLYPHS)
MARKS = {"+": ("pass", None, None), "-": ("fail", "triage-outcome", "category is other"),
         "x": ("fail", "failure-criteria", "needs_human is false"), "!": ("incomplete", None, "TimeoutError: no answer"),
         ".": ("incomplete", None, "NotRun: planned, but not in the log")}
# The pass counts published for two local models, 10 trials of the 9 development cases.
GEMMA = dict.fromkeys(("charged-twice", "stuck-tracking", "password-changed", "product-advice", "refund-missing",
                       "charged-after-closing", "blank-message", "missing-body", "late-order"), "++++++++++")
QWEN = {**GEMMA, "password-changed": "++x++x+-++", "product-advice": "--+-----+-", "late-order": "+++-+++++-"}
REFUSES = ("blank-message", "missing-body")
PASS_AT_K = [0.8556, 0.921, 0.9472, 0.963, 0.9753, 0.9852, 0.9926, 0.9975, 1.0, 1.0]
PASS_POWER_K = [0.8556, 0.7901, 0.7509, 0.7222, 0.7006, 0.6852, 0.675, 0.6691, 0.6667, 0.6667]


def completion(content=json.dumps(GOOD), reason="stop", **changes):
    """The body of a chat completion, as llama.cpp's server writes it."""
    return {"object": "chat.completion", "id": "chatcmpl-1", "created": 1765000000, "model": "small", "system_fingerprint": "b6000-1a2b3c4d",
            "choices": [{"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": content, **changes}}],
            "usage": {"completion_tokens": 17, "prompt_tokens": 210, "total_tokens": 227},
            "timings": {"prompt_n": 210, "prompt_ms": 41.5, "predicted_n": 17, "predicted_ms": 90.25}}


class FakeLlamaCpp(FakeOllama):
    """A stand-in for a server with chat completions, made after the documentation of llama.cpp's; with props None it is
    one that says nothing of itself."""

    def __init__(self, *replies, props=("/models/small-q8_0.gguf", "b6000-1a2b3c4d"), **options):
        super().__init__(*replies, **options)
        self.others = {"/v1/models": {"body": {"object": "list", "data": [{"id": "small", "object": "model"}]}}}
        if props:
            self.others["/props"] = {"body": {"model_path": props[0], "build_info": props[1], "total_slots": 1,
                                              "default_generation_settings": {"n_ctx": 4096}}}

    @property
    def url(self):
        return f"http://{self.address}/v1"

    @property
    def chats(self):
        return [request["body"] for request in self.requests if request["path"] == "/v1/chat/completions"]

    def _reply_to(self, request):
        with self.lock:
            self.requests.append(request)
            if request["path"] != "/v1/chat/completions":
                return self.others.get(request["path"], {"status": 404, "body": {"error": {"code": 404, "message": "File Not Found"}}})
            reply = dict(self.replies.pop(0)) if self.replies else {}
        if reply.get("status", 200) == 200 and "raw" not in reply:
            reply.setdefault("body", completion())
        return reply


class AnyServer(InFolder):
    """A model behind chat completions."""

    def system(self, server, name="small", **settings):
        made = model_triage.UrlChat(server.url, name, settings.pop("key_env", None))
        made.pauses_s = (0, 0)
        self.addCleanup(made.close)
        return made.configured(**settings) if settings else made

    def ended_as(self, *replies, **settings):
        """What a trial ends as whose chats are answered so: "pass", or the error's name and message."""
        with FakeLlamaCpp(*replies) as server:
            _, _, reason = harness.grade(triage_task, CASE, harness.attempt(self.system(server, **settings), CASE, 0))
            return reason or "pass"

    def test_a_request_and_its_answer(self):
        with FakeLlamaCpp() as server:
            answer = self.system(server, options={"max_tokens": "32", "top_k": 5}).respond(CASE, 3)
        (body,) = server.chats
        self.assertEqual({key: body[key] for key in body if key not in ("messages", "response_format")},
                         {"model": "small", "stream": False, "seed": 1003, "temperature": 1.0, "max_tokens": 32, "top_k": 5})
        self.assertEqual(body["messages"][1], {"role": "user", "content": CASE["input"]})
        self.assertEqual(body["response_format"], {"type": "json_schema", "json_schema": {
            "name": "reply", "schema": model_triage.SCHEMA, "strict": True}})
        self.assertEqual(answer.output, GOOD)
        told = {key: answer.metadata[key] for key in ("reply", "seed", "eval_count", "prompt_eval_count", "done_reason", "eval_duration_s",
                                                      "server_version")}
        self.assertEqual(told, {"reply": json.dumps(GOOD), "seed": 1003, "eval_count": 17, "prompt_eval_count": 210, "done_reason": "stop",
                                "eval_duration_s": 0.09025, "server_version": "b6000-1a2b3c4d"})

    def test_thinking_is_asked_for_as_such_servers_know_it_and_only_when_it_is_wanted(self):
        with FakeLlamaCpp() as server:
            for think in ("on", "off", "low"):
                self.system(server, think=think).respond(CASE, 0)
            text = self.system(server).asking({"messages": [], "schema": None}).configured({"num_predict": -1})
            self.assertEqual(text.respond(CASE, 0).output, json.dumps(GOOD))
        self.assertEqual([{key: body[key] for key in ("chat_template_kwargs", "reasoning_effort", "max_tokens", "response_format") if key in body
                           and key != "response_format"} for body in server.chats],
                         [{"chat_template_kwargs": {"enable_thinking": True}, "max_tokens": 64},
                          {"chat_template_kwargs": {"enable_thinking": False}, "max_tokens": 64},
                          {"reasoning_effort": "low", "max_tokens": 64}, {}])
        self.assertNotIn("response_format", server.chats[3])

    def test_a_strict_format_is_asked_for_where_the_schema_allows_it(self):
        self.assertTrue(model_triage.is_strict(model_triage.SCHEMA))
        for schema in ({"properties": {"a": {}}, "required": ["a"]}, {"properties": {"a": {}}, "additionalProperties": False},
                       {"items": [{"properties": {"a": {}}}]}):
            self.assertFalse(model_triage.is_strict(schema), schema)

    def test_each_fault_has_the_name_that_it_has_with_ollama(self):
        too_long = {"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 4476, "n_ctx": 4096,
                              "message": "request (4476 tokens) exceeds the available context size (4096 tokens)"}}
        vllm = {"object": "error", "type": "BadRequestError", "code": 400, "param": None,
                "message": "This model's maximum context length is 6048 tokens. However, you requested 6616 tokens"}
        for reply, ended in (
                ({}, "pass"), ({"body": {**completion(), "timings": {"prompt_ms": 10 ** 400}}}, "pass"),
                ({"body": completion("{\"cat", "length")}, "TruncatedReply: the reply was cut after 17 tokens: raise num_predict, or num_ctx"),
                ({"body": completion("", "content_filter")}, "UnfinishedReply: the server ended the reply before the model did (done is false)"),
                ({"body": completion("", reasoning_content="hm")}, "EmptyReply: no answer after the thinking"),
                ({"body": completion(None, refusal="I will not")}, "JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
                ({"body": completion(None, refusal={"no": 1})}, "JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
                ({"body": {"choices": []}}, "BadReply: the body has no choices[0].message.content: {\"choices\": []}"),
                ({"body": "<html>"}, "BadReply: the body is not JSON (Expecting value: line 1 column 1 (char 0)): <html>"),
                ({"cut": 60}, "BadReply: the connection broke before the whole answer was there"),
                ({"status": 400, "body": too_long}, "ContextOverflow: request (4476 tokens) exceeds the available context size (4096 tokens)"),
                ({"status": 400, "body": vllm}, "ContextOverflow: This model's maximum context length is 6048 tokens."),
                ({"status": 500, "body": {"error": {"message": "slot failed"}}}, "ServerError: slot failed")):
            with self.subTest(ended):
                self.assertEqual(self.ended_as(reply)[:len(ended)], ended)
        self.assertEqual(self.ended_as({"status": 503, "body": {"error": {"message": "Loading model"}}}), "pass")
        self.assertEqual(self.ended_as(HANG, timeout_s=0.05), "TimeoutError: no whole answer within 0.05 s")

    def down(self, *replies, **settings):
        with FakeLlamaCpp(*replies) as server, self.assertRaises(SystemDown) as caught:
            self.system(server, **settings).respond(CASE, 0)
        return str(caught.exception).replace(server.url, "URL")

    def test_what_keeps_any_trial_from_running_says_what_to_do(self):
        for reply, text in (
                ({"status": 307, "headers": {"Location": "http://127.0.0.1:1/"}},
                 "the server at URL refuses the request (HTTP 307: no words): it redirects, which is not followed: let --url name where it leads"),
                ({"status": 401, "body": {"error": {"message": "Invalid API Key", "type": "authentication_error"}}},
                 "the server at URL refuses the request (HTTP 401: Invalid API Key): let --key-env name the environment variable with the key"),
                ({"status": 404, "body": {"error": {"message": "no such model"}}},
                 "the server at URL refuses the request (HTTP 404: no such model): see that --url (URL) ends as the server's API does")):
            with self.subTest(text):
                self.assertIn(text, self.down({"body": "", **reply}))
        self.assertIn("is busy (HTTP 429: slow down; asked 3 times)", self.down(*[{"status": 429, "body": {"error": {"message": "slow down"}}}] * 3))
        gone = SimpleNamespace(url="http://127.0.0.1:1/v1")
        with self.assertRaises(SystemDown) as caught:
            self.system(gone).check_model()
        self.assertIn("no server at http://127.0.0.1:1/v1 (connection refused): start it, or set --url to where it runs", str(caught.exception))

    def test_an_address_is_read_strictly(self):
        for url, wanted in (("http://127.0.0.1:8080/v1", (False, "127.0.0.1", 8080, "/v1")), ("https://example.com/v1/", (True, "example.com", 443, "/v1")),
                            ("http://[::1]:80/v1/chat/completions", (False, "::1", 80, "/v1")), ("http://lab", (False, "lab", 80, ""))):
            address = model_triage.url_address(url)
            self.assertEqual((address.secure, address.host, address.port, address.base), wanted)
        for url in ("127.0.0.1:8080", "ftp://a/v1", "http://u:secret@a/v1", "http://a/v1?key=secret", "http://a:99999/v1", "http://a:0", "http:///v1", "http://a b"):
            with self.subTest(url), self.assertRaises(RunError) as caught:
                model_triage.url_address(url)
            self.assertNotIn("secret", str(caught.exception))

    def test_what_the_task_asks_of_ollama_alone_is_not_sent_and_told(self):
        with FakeLlamaCpp() as server:
            system = self.system(server).asking({**model_triage.TRIAGE, "options": {"num_ctx": 8192, "temperature": 0.5}})
            system.check_model()
        self.assertEqual((server.chats[0]["temperature"], server.chats[0]["max_tokens"]), (0.5, 16))
        self.assertEqual(system.warnings, ["the task asks for num_ctx, which Ollama alone has: not sent"])
        self.assertNotIn("num_ctx", system.options)
        self.assert_refused("option num_ctx is Ollama's", system.configured, {"num_ctx": "8192"})
        self.assert_refused("keep_alive is Ollama's", system.configured, keep_alive="1h")
        self.assertIn("--option num_predict=256", system.advice("TruncatedReply"))
        self.assertEqual(system.advice("ContextOverflow"), "start the server with a longer context")

    def test_a_server_that_says_nothing_of_itself_will_do(self):
        with FakeLlamaCpp(props=None) as server:
            system = self.system(server)
            system.check_model()
            answer = system.respond(CASE, 0)
            self.assertEqual(system.server_facts(), {"url": server.url, "pinned": False, "primed": False})
        self.assertEqual((answer.output, answer.metadata["server_version"]), (GOOD, None))
        self.assertEqual([request["path"] for request in server.requests],
                         ["/props", "/v1/chat/completions", "/v1/models", "/v1/chat/completions"])

    def test_a_name_is_asked_for_as_it_is_written(self):
        with FakeLlamaCpp() as server:
            self.system(server, "Qwen/Qwen3-8B").respond(CASE, 0)
        self.assertEqual(server.chats[0]["model"], "Qwen/Qwen3-8B")

    def test_a_server_that_lists_other_models_is_doubted(self):
        with FakeLlamaCpp() as server:
            system = self.system(server, "smal")
            system.check_model()
        self.assertEqual(system.warnings, ['the server lists no model "smal", and answers all the same; did you mean "small"?'])

    def test_a_server_that_names_another_model_file_meanwhile_stops_the_run(self):
        with FakeLlamaCpp() as server:
            system = self.system(server)
            system.check_model()
            server.others["/props"]["body"]["model_path"] = "C:\\models\\other.gguf"
            with self.assertRaises(SystemDown) as caught:
                system.check_model()
        self.assertIn("the server had small-q8_0.gguf when this began, and now has other.gguf", str(caught.exception))

    def test_a_run_says_that_its_model_is_not_pinned_and_holds_no_key(self):
        key = "sk-very-secret"
        echo = {"status": 500, "body": {"error": {"message": f"who is {key}?"}}}
        with FakeLlamaCpp({}, echo) as server, mock.patch.dict(os.environ, {"MY_KEY": key}):
            status, out, err = called(bench, "--url", server.url, "--model", "small", "--key-env", "MY_KEY", "--trials", 1, "--log", self.log)
            again = called(bench, "--url", server.url, "--model", "small", "--key-env", "MY_KEY", "--trials", 1, "--log", self.log)
        self.assertEqual((status, again[0]), (0, 0), err)
        self.assertIn("small: planned 9, already logged 0, ran 9, not run 0", out)
        self.assertEqual({request["headers"].get("authorization") for request in server.requests}, {f"Bearer {key}"})
        header, rows = bench.read_log(self.log)
        self.assertEqual(header["system"]["model"], "small (model not pinned)")
        self.assertEqual(header["environment"]["server"], {"url": server.url, "pinned": False, "primed": False, "model_path": "small-q8_0.gguf",
                                                           "build": "b6000-1a2b3c4d", "context_length": 4096})
        self.assertEqual(rows[0]["error"]["message"], "who is [key]?")
        shown = called(report, self.log)
        self.assertIn("small (model not pinned)  ctx 4096  temp 1  server b6000-1a2b3c4d", shown[1])
        for text in (out, err, *again[1:], *shown[1:], self.log.read_text()):
            self.assertNotIn(key, text)

    def test_wrong_uses_are_refused(self):
        for words, text in (
                (["--url", "http://127.0.0.1:1/v1"], "--url needs --model: the name to ask the server for"),
                (["--key-env", "X", "--model", "m"], "--key-env needs --url: the server that asks for a key"),
                (["--url", "127.0.0.1:1", "--model", "m"], 'url "127.0.0.1:1": it is not of that form: give the address of the API'),
                (["--url", "http://127.0.0.1:1/v1", "--model", "m", "--key-env", "NO_SUCH_KEY", "--log", self.log],
                 "key_env NO_SUCH_KEY: this environment variable is empty or not set: put the key into it")):
            with self.subTest(words):
                status, _, err = called(bench, *words)
                self.assertIn(text, err)
                self.assertGreater(status, 0)


SURE = {name: exchange["body"] for name, exchange in json.loads((HERE / "recorded" / "logprobs-wire.json").read_text())["exchanges"].items()}
EMBEDDED_SURE = model_triage.bayes.with_logprobs(5)


class AskingForLogprobs(InFolder):
    """--logprobs: what is asked for, what is kept of it, and that nothing else changes."""
    loaded = harness.load_cases(CASE_FILE, triage_task)

    def run_on(self, server, *words):
        """What a run of one trial a case says on stderr, on a stand-in."""
        with server, mock.patch("os.fsync"):
            status, out, err = called(bench, "--model", "smollm2:135m", "--trials", "1", "--log", self.log, *words)
        self.assertEqual(status, 0, err)
        return err

    def kept(self):
        return [row["metadata"].get("logprobs") for row in self.rows() if "reply" in row["metadata"]]

    def test_a_real_reply_is_kept_in_compact_form_to_four_decimals(self):
        server = FakeOllama(usual={"body": SURE["logprobs_gemma3_schema"]})
        self.assertEqual(self.run_on(server, "--logprobs"), "")
        self.assertEqual({(chat["logprobs"], chat["top_logprobs"]) for chat in server.chats}, {(True, 5)})
        kept = self.kept()
        self.assertEqual(kept, [kept[0]] * 7)
        told = json.loads(SURE["logprobs_gemma3_schema"])
        self.assertEqual("".join(kept[0]["tokens"]), told["message"]["content"])
        self.assertEqual((kept[0]["logprobs"][0], kept[0]["tops"][0][:4]), (-9.6984, ["You", -0.9845, "I", -2.0897]))
        self.assertEqual((list(kept[0]), len(kept[0]["tokens"]), {len(tops) for tops in kept[0]["tops"]}),
                         (["tokens", "logprobs", "tops"], told["eval_count"] - 1, {10}))
        self.assertLess(len(json.dumps(kept[0])), 0.3 * len(SURE["logprobs_gemma3_schema"]))

    def test_the_header_says_it_and_the_plan_does_not(self):
        for words, said in ((("--logprobs", "0"), 0), (("--logprobs=20",), 20), ((), None)):
            self.log.unlink(missing_ok=True)
            server = FakeOllama(usual={"body": SURE["logprobs_smollm2_schema"]})
            self.run_on(server, *words)
            header = bench.read_log(self.log)[0]
            self.assertEqual((header.get("logprobs"), header["system"], server.chats[-1].get("top_logprobs")), (
                said, harness.system_identity(ModelTriage("smollm2:135m", header["system"]["model"][-12:])), said))
            self.assertEqual([told is None for told in self.kept()], [said is None] * 7)

    def test_rows_with_and_without_share_a_log(self):
        self.run_on(FakeOllama())
        server = FakeOllama(usual={"body": SURE["logprobs_smollm2_schema"]})
        self.run_on(server, "--trials", "2", "--extend", "--logprobs", "1")
        self.assertEqual([told is None for told in self.kept()], [True] * 7 + [False] * 7)

    def test_a_server_that_does_not_know_the_field_is_told_of_once(self):
        self.assertEqual(self.run_on(FakeOllama(), "--logprobs", "3"), (
            "warning: the server sends no log-probabilities with a reply of smollm2:135m (an older one knows none): "
            "the trials are run without\n"))
        self.assertEqual(self.kept(), [None] * 7)

    def test_what_is_no_such_list_is_kept_as_none_and_is_no_fault_of_the_trial(self):
        token = {"token": "a", "logprob": -1, "bytes": [97]}
        for odd in (1, "x", {}, [], [1], [{}], [{"token": 1, "logprob": -1}], [{"token": "a", "logprob": "b"}], [{**token, "top_logprobs": 3}],
                    [{**token, "top_logprobs": [{"token": [[]], "logprob": 0}]}], [{"token": "\ufffd", "logprob": -1, "bytes": [256]}]):
            self.assertIsNone(model_triage.kept_logprobs(odd), odd)
        self.log.unlink(missing_ok=True)
        self.run_on(FakeOllama(usual={"body": chat_body(logprobs=[{"token": {}}])}), "--logprobs")
        self.assertEqual(len([row for row in self.rows() if "output" in row]), 7)

    def test_half_a_character_is_its_bytes_and_a_long_reply_is_cut(self):
        half = [{"token": "\ufffd", "logprob": -1.00004, "bytes": [byte], "top_logprobs": []} for byte in "é".encode()]
        self.assertEqual(model_triage.kept_logprobs([*half, {"token": "\ufffd", "logprob": 0, "bytes": None}, {"token": "\ufffd", "logprob": 0, "bytes": 10 ** 12}]),
                         {"tokens": [[195], [169], "\ufffd", "\ufffd"], "logprobs": [-1.0, -1.0, 0.0, 0.0]})
        kept = model_triage.kept_logprobs([{"token": "a", "logprob": -0.5}] * 515)
        self.assertEqual((len(kept["tokens"]), len(kept["logprobs"]), kept["rest"]), (512, 512, 3))

    def test_a_server_with_chat_completions_is_asked_in_its_own_form(self):
        told = json.loads(SURE["logprobs_smollm2_schema"])
        answer = completion(told["message"]["content"])
        answer["choices"][0]["logprobs"] = {"content": told["logprobs"]}
        with FakeLlamaCpp(*[{"body": answer}] * 8) as server, mock.patch("os.fsync"):
            status, _, err = called(bench, "--url", f"http://{server.address}/v1", "--model", "small", "--logprobs", "2", "--trials", "1", "--log", self.log)
        self.assertEqual((status, err), (0, ""))
        self.assertEqual({(chat["logprobs"], chat["top_logprobs"]) for chat in server.chats}, {(True, 2)})
        self.assertEqual(self.kept(), [model_triage.kept_logprobs(told["logprobs"])] * 7)

    def test_the_embedded_sampler_tells_its_posterior(self):
        weights = {("billing", False): 62, ("account", True): 10, ("account", False): 20, ("other", False): 8}
        tokens = model_triage.posterior_tokens(weights, ("account", True), 2)
        self.assertEqual("".join(token["token"] for token in tokens), json.dumps({"category": "account", "needs_human": True}))
        self.assertAlmostEqual(math.exp(sum(token["logprob"] for token in tokens)), 0.1)
        self.assertEqual([(top["token"], round(math.exp(top["logprob"]), 6)) for top in tokens[1]["top_logprobs"]], [("billing", 0.62), ("account", 0.3)])
        for trial in range(20):
            plain, told = (system.respond(CASE, trial) for system in (model_triage.bayes, EMBEDDED_SURE))
            self.assertEqual((plain.output, plain.metadata), (told.output, {key: told.metadata[key] for key in plain.metadata}))
            self.assertEqual(json.loads("".join(told.metadata["logprobs"]["tokens"])), plain.output)
        self.assertEqual(harness.system_identity(EMBEDDED_SURE), harness.system_identity(model_triage.bayes))

    def test_who_has_none_to_tell_and_what_is_no_number(self):
        for words, message in ((("--command", "cat", "--logprobs"), "error: cat tells no log-probabilities: --logprobs is for models and model_triage:bayes\n"),
                               (("--logprobs", "21"), "argument --logprobs: '21' is not a whole number from 0 to 20"),
                               (("--logprobs", "-1"), "argument --logprobs: '-1' is not a whole number from 0 to 20")):
            status, _, err = called(bench, *words)
            self.assertNotEqual(status, 0)
            self.assertIn(message, err)

    def test_more_than_the_server_gives_is_refused_in_its_own_words(self):
        with FakeOllama({"status": 400, "body": SURE["logprobs_21"]}):
            self.assertIn("top_logprobs must be between 0 and 20", str(refusal(self, small().with_logprobs(21).check_model)))


def python_words(*words):
    """A command line that has this Python run something, started as soon as it can be."""
    return shlex.join([sys.executable, "-S", "-E", *map(str, words)])


# A program that leaves a child behind, which tells the test its folder and then holds its connection for ever.
WITH_A_CHILD = """
import os, socket, subprocess, sys, time
if sys.argv[2:]:
    if sys.argv[2] == "stray":
        os.setsid()
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    connection.sendall(os.getcwd().encode() + b"\\n")
    print("ready", flush=True)
    time.sleep(600)
child = subprocess.Popen([sys.executable, "-S", "-E", __file__, sys.argv[1], os.environ["CASE_ID"]], stdout=subprocess.PIPE)
child.stdout.readline()
if os.environ["CASE_ID"] == "killed":
    os.kill(os.getpid(), 9)
if os.environ["CASE_ID"] == "stray":
    sys.exit(print("{}"))
time.sleep(600)
"""


class AnyProgram(InFolder):
    """A command as a system."""

    def command(self, source, **options):
        self.write("agent.py", source)
        return model_triage.Command(python_words(self.folder / "agent.py"), **options)

    def respond(self, source, trial=0, options=(), **changes):
        return self.command(source, **dict(options)).respond(case(**changes), trial)

    def error_of(self, source, **changes):
        """The error that a program's trial ends as, as "NAME: message"."""
        with self.assertRaises((model_triage.ReplyError, ValueError, TimeoutError)) as caught:
            self.respond(source, **changes)
        self.error = caught.exception
        return f"{harness.error_types(caught.exception)[0]}: {caught.exception}"

    def test_a_program_gets_the_message_and_the_trial_and_answers_with_json(self):
        answer = self.respond("import json, os, sys\nprint(json.dumps([sys.stdin.read(), *map(os.environ.get, "
                              "('TRIAL_SEED', 'CASE_ID', 'TRIAL'))]))\nprint('a\\nremark', file=sys.stderr)", trial=3)
        self.assertEqual(answer.output, ["text of one", "1003", "one", "3"])
        self.assertEqual((answer.metadata["seed"], answer.metadata["stderr"]), (1003, "a\nremark"))

    def test_a_task_without_schema_takes_the_output_as_text_and_asks_with_all_its_messages(self):
        system = self.command("import sys\nprint(sys.stdin.read().upper())").asking(
            {"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "{input}!"}], "schema": None})
        self.assertEqual(system.respond(case(), 0).output, "BE KIND\n\nTEXT OF ONE!")

    def test_each_fault_has_its_own_name_and_keeps_the_end_of_what_the_program_said(self):
        self.assertEqual(self.error_of("raise SystemExit('cannot do it')"),
                         "CommandFailed: the command ended with exit status 1: cannot do it")
        self.assertEqual(self.error.metadata["stderr"], "cannot do it")
        self.assertEqual(self.error_of("print('{')"), "JSONDecodeError: Expecting property name enclosed in double quotes: "
                                                      "line 1 column 2 (char 1)")
        self.assertEqual(self.error.metadata["reply"], "{\n")
        self.assertEqual(self.error_of("import os\nos.write(1, b'a\\xff')"),
                         "BadReply: the output is not UTF-8 text: byte 1 is 0xff")
        with mock.patch("model_triage.MOST_OUTPUT", 1 << 20):
            self.assertEqual(self.error_of("import os\nwhile True: os.write(1, bytes(65536))"),
                             "OutputTooLong: the output is over 1 MB")
        with mock.patch("model_triage.MOST_OUTPUT", 3):     # which has ended by itself when that is seen
            self.assertEqual(self.error_of("print('{}  ')"), "OutputTooLong: the output is over 0 MB")

    def test_much_said_on_standard_error_is_no_fault_and_only_its_end_is_kept(self):
        answer = self.respond("import os\nfor _ in range(20): os.write(2, bytes(65536))\nos.write(2, b'end')\nprint('1')")
        self.assertTrue(answer.metadata["stderr"].endswith("end"))
        self.assertLessEqual(len(answer.metadata["stderr"]), model_triage.KEPT_BYTES)

    @contextlib.contextmanager
    def child(self):
        """A port that a program's child connects to, and a function that gives its folder and sees it end."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(60)

            def connected():
                connection, _ = server.accept()
                self.addCleanup(connection.close)
                connection.settimeout(60)
                lines = connection.makefile("rb")
                self.addCleanup(lines.close)
                return Path(os.fsdecode(lines.readline()[:-1])), lines
            yield server.getsockname()[1], connected

    def assert_ended(self, lines):
        with contextlib.suppress(ConnectionResetError):
            self.assertEqual(lines.read(), b"")     # the child's end of the connection is closed: it is gone

    def with_a_child(self, port):
        (self.folder / "work").mkdir()
        self.write("agent.py", WITH_A_CHILD)
        return [python_words(self.folder / "agent.py", port), False, self.folder / "work"]

    @unittest.skipIf(os.name == "nt", "a signal")
    def test_nothing_is_left_of_a_program_that_is_killed(self):
        with self.child() as (port, connected), self.assertRaises(model_triage.CommandKilled) as caught:
            try:
                model_triage.Command(*self.with_a_child(port)).respond(case("killed"), 0)
            finally:
                folder, lines = connected()
        self.assertEqual(str(caught.exception), "the command was ended by SIGKILL")
        self.assert_ended(lines)
        self.assertFalse(folder.exists())

    def test_nothing_is_left_of_a_program_that_takes_too_long(self):
        with self.child() as (port, connected):
            def wait(program, seconds):
                found.append(connected())
                raise TimeoutError(f"no end within {seconds:g} s")
            found = []
            with mock.patch("model_triage.Program.wait", wait), self.assertRaises(TimeoutError):
                model_triage.Command(*self.with_a_child(port)).respond(case(), 0)
        (folder, lines), = found
        self.assert_ended(lines)
        self.assertFalse(folder.exists())

    @unittest.skipUnless(sys.platform == "linux", "only Linux tells what a process was started with")
    def test_nothing_is_left_of_a_program_whose_child_has_left_its_group(self):
        with self.child() as (port, connected):
            self.assertEqual(model_triage.Command(*self.with_a_child(port)).respond(case("stray"), 0).output, {})
            self.assert_ended(connected()[1])

    @unittest.skipIf(os.name == "nt", "a signal")
    def test_nothing_is_left_after_an_interrupt(self):
        cases = self.write("cases.json", json.dumps({"name": "small", "cases": [case()]}))
        with self.child() as (port, connected):
            command, _, workspace = self.with_a_child(port)
            run = subprocess.Popen([sys.executable, "-S", HERE / "bench.py", "--cases", cases, "--command", command, "--workspace",
                                    workspace, "--log", self.log], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.addCleanup(run.communicate)
            self.addCleanup(run.kill)
            folder, lines = connected()
            run.send_signal(signal.SIGINT)
            self.assertEqual(run.wait(60), 130)
        self.assert_ended(lines)
        self.assertFalse(folder.exists())

    def test_an_ended_system_runs_no_further_program_and_a_later_trial_starts_afresh(self):
        system = self.command("print(1)")
        with system.jobs.trial() as ended:
            ended.set()
            with self.assertRaises(SystemDown), system.jobs.program(ended, ["never"], b"", None, {}):
                pass
        system.close()
        self.assertEqual(system.respond(case(), 0).output, 1)

    # What it is

    def test_the_identity_holds_the_command_and_its_files_wherever_they_lie(self):
        system = self.command("print(1)")
        self.assertEqual(system.name, "agent")
        self.assertEqual(system.options["command"][1:], ["-S", "-E", "agent.py"])
        digest = hashlib.sha256(b"print(1)").hexdigest()
        self.assertIn(["agent.py", digest], system.files)
        (self.folder / "elsewhere").mkdir()
        shutil.copy(self.folder / "agent.py", self.folder / "elsewhere")
        there = model_triage.Command(python_words(self.folder / "elsewhere" / "agent.py"))
        self.assertEqual(harness.system_identity(there), harness.system_identity(system))
        self.assertNotEqual(self.command("print(2)").model, system.model)
        self.assertNotEqual(system.asking({**system.asked, "test": "true"}).model, system.model)

    def test_a_file_of_the_command_that_changes_meanwhile_stops_the_run(self):
        system = self.command("print(1)")
        self.assertTrue(system.files)
        self.assertEqual(system.confirm(), {})
        self.write("agent.py", "print(2)")
        with self.assertRaises(SystemDown) as caught:
            system.confirm()
        self.assertIn("agent.py was changed while the command was measured", str(caught.exception))

    def test_the_shell_takes_part_only_when_it_is_asked_for(self):
        self.assertEqual(self.command("import sys\nprint(len(sys.argv))").words[-1], str(self.folder / "agent.py"))
        if os.name != "nt":
            self.assertEqual(model_triage.Command("echo 1 | cat", shell=True).respond(case(), 0).output, 1)
            self.assertEqual(model_triage.Command("echo 1 | cat").asking(
                {"messages": [], "schema": None}).respond(case(), 0).output, "1 | cat")

    # Its folder

    def workspace(self):
        folder = self.folder / "work"
        folder.mkdir()
        (folder / "given.txt").write_text("given")
        return folder

    def test_each_trial_has_a_fresh_copy_of_the_workspace_and_the_files_of_its_case(self):
        folder = self.workspace()
        system = self.command("import json, os\nprint(json.dumps(sorted(os.listdir('.'))))\nos.mkdir('own')\n"
                              "open('own/new', 'w').write(open('given.txt').read())\nos.chmod('own', 0o500)\n"
                              "os.remove('given.txt')\nimport sys\nprint(os.getcwd(), file=sys.stderr)", workspace=folder)
        for trial in range(2):
            answer = system.respond(case(files={"src/main.py": "x"}), trial)
            self.assertEqual(answer.output, ["given.txt", "src"])
            self.assertEqual(answer.metadata["stderr"], ".")
        self.assertEqual(os.listdir(folder), ["given.txt"])

    def test_a_folder_that_cannot_be_made_is_no_fault_of_the_program(self):
        system = self.command("print(1)", workspace=self.workspace())
        with mock.patch("tempfile.mkdtemp", side_effect=OSError(28, "No space left")), self.assertRaises(SystemDown) as caught:
            system.respond(case(), 0)
        self.assertEqual(str(caught.exception), "a trial's folder cannot be made: [Errno 28] No space left")

    def test_the_workspace_belongs_to_the_identity(self):
        folder = self.workspace()
        before = self.command("print(1)", workspace=folder).model
        self.assertEqual(self.command("print(1)", workspace=folder).model, before)
        (folder / "given.txt").write_text("other")
        self.assertNotEqual(self.command("print(1)", workspace=folder).model, before)

    def test_a_test_sees_the_hidden_files_and_the_program_does_not(self):
        system = self.command("import os\nassert os.listdir('.') == ['a.py']\nopen('b.py', 'w').write('b = 2')").asking(
            {"messages": [], "schema": harness.TEST_SCHEMA})
        for wanted, ended in (("2", {"exit": 0, "output": "seen"}), ("3", {"exit": 1, "output": "seen\n2 is not 3"})):
            given = case(files={"a.py": ""}, test=python_words("t/check.py"), hidden={
                "t/check.py": f"import sys\nprint('seen', flush=True)\nsys.path.append('.')\nimport b\nif b.b != {wanted}: sys.exit(f'{{b.b}} is not {wanted}')"})
            self.assertEqual(system.respond(given, 0).output, ended)

    def test_fields_that_a_schema_has_beside_those_of_the_test_come_from_the_reply(self):
        system = self.command("print('{\"cost\": 3}')").asking(
            {"messages": [], "schema": {"properties": {"cost": {}, "exit": {}}}, "test": python_words("-c", "raise SystemExit(7)")})
        self.assertEqual(system.respond(case(), 0).output, {"cost": 3, "exit": 7})

    def test_a_test_that_does_not_end_or_cannot_be_run_has_failed(self):
        system = self.command("print()").asking({"messages": [], "schema": harness.TEST_SCHEMA})
        self.assertEqual(system.respond(case(test="./gone"), 0).output["exit"], 127)
        with mock.patch.object(system, "run", side_effect=[(SimpleNamespace(output=b"", errors=b""), 0),
                                                           (SimpleNamespace(output=b"so far"), TimeoutError("no end within 9 s"))]):
            self.assertEqual(system.respond(case(test=python_words("x")), 0).output,
                             {"exit": 124, "output": "so far\n(no end within 9 s)"})
        with self.assertRaises(SystemDown) as caught:
            system.respond(case(test="no-such-test"), 0)
        self.assertIn('case one: its test needs "no-such-test"', str(caught.exception))

    @unittest.skipIf(os.name == "nt", "links")
    def test_files_are_never_written_through_a_link_that_a_program_has_laid(self):
        outside, folder = self.folder / "outside", self.folder / "work"
        outside.mkdir()
        folder.mkdir()
        (outside / "kept").write_text("kept")
        (folder / "t").symlink_to(outside)
        (folder / "link").symlink_to(outside / "kept")
        os.link(outside / "kept", folder / "same")
        (folder / "folder").mkdir()
        model_triage.put_files(str(folder), {"t/kept": "1", "link": "2", "same": "3", "folder": "4"})
        self.assertEqual((outside / "kept").read_text(), "kept")
        self.assertEqual([(folder / name).read_text() for name in ("t/kept", "link", "same", "folder")], list("1234"))
        shutil.rmtree(folder)
        folder.symlink_to(outside)
        model_triage.put_files(str(folder), {"kept": "5"})
        self.assertEqual((outside / "kept").read_text(), "kept")
        self.assert_refused("is not a path below the folder", model_triage.put_files, str(folder), {"../out": ""})

    # Its cases and its command line

    def test_what_is_wrong_with_files_and_tests_is_told_with_all_other_faults(self):
        for path in ("../a", "/a", "a/../b", "", "a//b", "./a", "a/", "a\\b", "C:a", "a\nb"):
            with self.subTest(path):
                self.assertIsNotNone(harness.path_problem(path))
        self.assertIsNone(harness.path_problem("src/.hidden/a b.py"))
        document = {"name": "code", "prompt": "{input}", "cases": [
            {"id": "one", "input": "x", "expect": {"exit": 0}, "files": {"a": "", "a/b": ""}, "hidden": {"../c": ""}, "test": "'"},
            {"id": "two", "input": "x", "expect": {"exit": 0}, "files": ["a"], "hidden": {"c": ""}}]}
        path = self.write("code.json", json.dumps(document))
        with self.assertRaises(CaseError) as caught:
            harness.load_plan(str(path))
        self.assertEqual([line.partition("code.json: ")[2] for line in str(caught.exception).split("\n")], [
            'case one: files: "a" is a file and the folder of another',
            'case one: hidden: "../c" is not a path below the folder: give it without a / at its ends, and without . and .. in it',
            'case one: test is "\'", not a command such as "python3 -m unittest"',
            'case two: files is not an object of texts such as {"src/main.py": "print()"}',
            "case two: hidden files are for a test, and there is none: give the case or the task a test"])

    def code_task(self):
        return self.write("code.json", json.dumps({"name": "code", "prompt": "{input}", "test": python_words("check.py"), "cases": [
            {"id": name, "input": name, "hidden": {"check.py": f"import os\nassert os.path.exists('{name}')"}, "expect": {"exit": 0}}
            for name in ("made", "missing")]}))

    def test_a_coding_agent_is_run_logged_and_graded(self):
        self.write("agent.py", "open('made', 'w')")
        words = [self.code_task(), "--trials", 2, "--command", python_words(self.folder / "agent.py"), "--log", self.log]
        status, out, err = called(bench, *words)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("agent: planned 4, already logged 0, ran 4, not run 0", out)
        self.assertEqual([(row["case_id"], row["output"]["exit"]) for row in self.rows()],
                         [("made", 0), ("missing", 1)] * 2)
        self.assertIn("already logged 4, ran 0", called(bench, *words)[1])
        self.assertIn("2 cases x 2 trials: 2 passed, 2 failed", called(report, self.log)[1])

    def test_the_task_in_the_readme_grades_as_it_says(self):
        text = (HERE / "README.md").read_text(encoding="utf-8")
        source = re.search(r'^```json\n(\{"name": "code".*?)^```$', text, re.MULTILINE | re.DOTALL)[1]
        document = json.loads(source.replace("python3", shlex.quote(Path(sys.executable).as_posix())))
        task, cases = harness.load_plan(str(self.write("code.json", json.dumps(document))))
        for returned, verdict in (("a + b", "pass"), ("a - b", "fail")):
            system = self.command(f"open('add.py', 'w').write('def add(a, b): return {returned}')").asking(task.asked)
            self.assertEqual(harness.grade(task, cases["cases"][0], harness.attempt(system, cases["cases"][0], 0))[0], verdict)

    def test_a_case_that_is_tested_otherwise_is_another_case_to_a_later_plan(self):
        plain = bench.input_hash(case())
        self.assertEqual(plain, harness.sha256(harness.canonical("text of one"))[:16])
        self.assertEqual(len({plain, *(bench.input_hash(case(**{key: value})) for key, value in
                                       (("files", {}), ("hidden", {}), ("test", "true")))}), 4)

    def test_wrong_uses_are_refused(self):
        for words, text in (
                (["--command", "x", "--model", "m"], "argument --command: not allowed with argument --model"),
                (["--shell"], "--shell needs --command: the program to run"),
                (["--workspace", "x"], "--workspace needs --command: the program to run"),
                (["--command", "x", "--workspace", self.folder / "no"], "is no folder"),
                (["--command", sys.executable, "--workspace", self.folder, "--log", self.log], "lies in"),
                (["--command", "'"], "cannot be read: no closing quotation"),
                (["--command", " "], "the command is empty: give a program and its arguments"),
                (["--command", "x", "--option", "top_k=1"], "a command has no options: put top_k among its arguments"),
                (["--command", "x", "--think", "on"], "think is on: a command has no such setting"),
                (["--command", "no-such-program", "--log", self.log], 'there is no program "no-such-program" to run'),
                ([self.code_task(), "--model", "m"], "case made has files or a test, which only a program works with")):
            with self.subTest(words):
                status, _, err = called(bench, *words)
                self.assertIn(text, err)
                self.assertEqual((status > 0, err.splitlines()[-1][:5 + len("error")].rpartition("error")[1]), (True, "error"))


def result(case_id, trial, mark, refuses=(), **metadata):
    """A row of a run record, whose verdict is that of a mark."""
    verdict, check, reason = MARKS[mark]
    output = {"+": {"category": "billing"}, "-": {"category": "other"}, "x": {"category": "other", "why": 1}}.get(mark)
    row = {"case_id": case_id, "class": "billing", "split": "development", "trial": trial, "verdict": verdict,
           "check": check, "reason": reason, "output": None if case_id in refuses else output,
           "metadata": {"recorded_latency_s": None if mark == "." else 0.5, **metadata}}
    return {**row, "expects_rejection": True} if case_id in refuses else row


def run_record(grid, name="small", refuses=(), metadata=None, **manifest):
    """A run record drawn as {"a": "++-x!."}: passed, passed, two ways to fail, incomplete, not run."""
    rows = [result(case_id, trial, mark, refuses, **(metadata or {})) for case_id, marks in grid.items()
            for trial, mark in enumerate(marks)]
    named = {"name": "small", "sha256": "0" * 64}
    system = {"name": name, "version": "1", "mode": "replay", "model": "", "prompt": "", "tools": []}
    return {"manifest": {"harness_version": harness.HARNESS_VERSION, "task": named, "case_set": named, "system": system,
                         "splits": ["development"], "trials": len(next(iter(grid.values()))),
                         "recording_sha256": "1" * 64, **manifest}, "results": rows}


def matrix(*rows):
    """A pass matrix drawn as "++-", a row a case."""
    return [[mark == "+" for mark in row] for row in rows]


def report_on(*words):
    """What the command line makes of these words: its exit status, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = report.main([str(word) for word in words])
        except SystemExit as end:
            status = end.code
    return SimpleNamespace(status=status, out=out.getvalue(), err=err.getvalue())


def one_case(rows):
    """The rows of one case as a record in compact form."""
    return harness.compact({"manifest": {"trials": len(rows)}, "results": rows})


class TheContents(unittest.TestCase):
    """What report.py and bench.py say of their own contents."""
    parts = {"bench.py": "Plan Read Grade Write Run Show Command", "report.py": "Read Estimate Judge Show Command"}
    sources = {name: (HERE / name).read_text(encoding="utf-8") for name in parts}

    def test_the_parts_stand_in_the_order_of_the_contents(self):
        for name, parts in self.parts.items():
            contents = re.search("^# The contents.*?\n\n", self.sources[name], re.MULTILINE | re.DOTALL)[0]
            told = re.sub(r"\s+", " ", contents.replace("#", ""))
            heads = re.findall(f"^# ({parts.replace(' ', '|')}): (.*)$", self.sources[name], re.MULTILINE)
            self.assertEqual(list(dict.fromkeys(part for part, _ in heads)), parts.split())
            places = [told.index(re.split("[:,] | of ", what)[0], told.index(f" {part} ")) for part, what in heads]
            self.assertEqual(places, sorted(places))

    def test_no_function_is_longer_than_40_lines(self):
        long = [node.name for source in self.sources.values() for node in ast.walk(ast.parse(source))
                if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= 40]
        self.assertEqual(long, [])


class Formulas(unittest.TestCase):
    def test_published_values_of_pass_at_k(self):
        for n, c, k, value in ((10, 3, 1, 0.3), (10, 3, 2, 0.5333), (10, 3, 5, 0.9167), (10, 3, 8, 1.0), (10, 7, 3, 0.9917),
                               (4, 2, 2, 0.8333), (200, 13, 1, 0.065), (200, 13, 10, 0.4976), (200, 13, 100, 0.9999),
                               (5, 1, 3, 0.6), (5, 3, 3, 1.0)):
            with self.subTest(n=n, c=c, k=k):
                self.assertEqual(round(report.pass_at_k(n, c, k), 4), value)

    def test_published_values_of_pass_power_k(self):
        for n, c, k, value in ((10, 7, 3, 0.2917), (4, 2, 2, 0.1667), (4, 2, 3, 0.0), (10, 8, 5, 0.2222)):
            with self.subTest(n=n, c=c, k=k):
                self.assertEqual(round(report.pass_power_k(n, c, k), 4), value)

    def test_both_formulas_agree_with_listing_every_subset(self):
        checked = 0
        for n in range(1, 9):
            for trials in itertools.product((False, True), repeat=n):
                for k in range(1, n + 1):
                    subsets = list(itertools.combinations(trials, k))
                    for formula, passes in ((report.pass_at_k, any), (report.pass_power_k, all)):
                        exact = Fraction(sum(map(passes, subsets)), len(subsets))
                        self.assertLessEqual(abs(Fraction(formula(n, sum(trials), k)) - exact), 1e-15)
                    checked += 1
        self.assertEqual(checked, 3586)

    def test_two_thousand_trials_are_exact_to_twelve_digits(self):
        n = 2000
        for c, k in itertools.product((0, 1, 2, 1000, 1234, 1999, 2000), (1, 2, 10, 500, 1999, 2000)):
            exact = Fraction(math.comb(c, k), math.comb(n, k))
            self.assertLess(abs(Fraction(report.pass_power_k(n, c, k)) - exact), 1e-12)
            self.assertLess(abs(Fraction(report.pass_at_k(n, n - c, k)) - (1 - exact)), 1e-12)

    def test_a_k_that_the_trials_cannot_give_is_refused(self):
        for n, c, k in ((10, 3, 11), (10, 3, 0), (10, 3, -1), (10, 11, 1), (10, -1, 1)):
            for formula in (report.pass_at_k, report.pass_power_k):
                with self.subTest(n=n, c=c, k=k), self.assertRaises(ValueError):
                    formula(n, c, k)

    def test_a_suite_is_averaged_over_its_cases(self):
        values = harness.curve_values(10, [0, 3, 10])
        self.assertEqual((round(values[0][0], 4), round(values[4][0], 4)), (0.4333, 0.6389))

    def test_equal_pass_rates_can_hide_different_suites(self):
        self.assertEqual(report.curve(4, [4, 0])["2"], {"pass_at_k": 0.5, "pass_power_k": 0.5})
        self.assertEqual(report.curve(4, [2, 2])["2"], {"pass_at_k": 0.8333, "pass_power_k": 0.1667})

    def test_the_curve_is_that_of_the_single_formulas(self):
        for k, (at, power) in enumerate(harness.curve_values(7, [0, 2, 5, 7]), start=1):
            self.assertAlmostEqual(at, sum(report.pass_at_k(7, c, k) for c in (0, 2, 5, 7)) / 4, 14)
            self.assertAlmostEqual(power, sum(report.pass_power_k(7, c, k) for c in (0, 2, 5, 7)) / 4, 14)

    def test_every_k_of_ten_thousand_trials_can_be_had(self):
        curve = report.curve(10_000, range(0, 10_000, 50))
        self.assertEqual((len(curve), curve["1"], curve["10000"]), (
            10_000, {"pass_at_k": 0.4975, "pass_power_k": 0.4975}, {"pass_at_k": 0.995, "pass_power_k": 0.0}))

    def test_nearest_rank(self):
        values = [15, 20, 35, 40, 50]
        self.assertEqual([harness.nearest_rank(values, share) for share in (0, 0.05, 0.3, 0.4, 0.5, 0.9, 1)],
                         [15, 15, 20, 20, 35, 50, 50])

    def test_nearest_rank_is_not_off_by_a_rounding_error(self):
        self.assertEqual(harness.nearest_rank(range(1, 101), 0.07), 7)

    def test_nearest_rank_of_nothing_is_none(self):
        self.assertIsNone(harness.nearest_rank([], 0.5))


class Intervals(unittest.TestCase):
    def test_published_values_of_wilson(self):
        for c, n, low, high in ((7, 10, 0.397, 0.892), (14, 20, 0.481, 0.855), (70, 100, 0.604, 0.781), (0, 10, 0.0, 0.278),
                                (10, 10, 0.722, 1.0), (1, 30, 0.006, 0.167), (9, 15, 0.357, 0.802)):
            with self.subTest(c=c, n=n):
                self.assertEqual(tuple(round(limit, 3) for limit in report.wilson(c / n, n)), (low, high))

    def test_wilson_is_exact_at_the_ends(self):
        for n in (1, 3, 10, 90, 1e6):
            self.assertEqual((report.wilson(0, n)[0], report.wilson(1, n)[1]), (0.0, 1.0))

    def test_student_quantiles(self):
        published = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 8: 2.3060, 9: 2.2622, 30: 2.0423, 89: 1.9870}
        for freedom, value in published.items():
            self.assertAlmostEqual(harness.t_quantile(freedom), value, delta=0.003 if freedom == 5 else 0.0005)

    def test_effective_trials_by_hand(self):
        correction = (harness.t_quantile(3) / harness.t_quantile(1)) ** 2
        self.assertAlmostEqual(harness.effective_trials([0.0, 0.5], 4), 0.25 * 0.75 / (0.125 / 2) * correction, 12)

    def test_effective_trials_at_the_edges(self):
        self.assertIsNone(harness.effective_trials([0.5], 10))
        self.assertEqual(harness.effective_trials([1.0, 1.0, 1.0], 30), 3)
        self.assertEqual(harness.effective_trials([0.0, 0.0], 30), 2)
        self.assertEqual(harness.effective_trials([0.5, 0.5], 30), 30)
        self.assertAlmostEqual(harness.effective_trials([0.1] * 3, 30), 30)

    def rate(self, *rows):
        return harness.pass_rate(*harness.sums(matrix(*rows)))

    def band(self, *rows):
        return report.curve_band(*harness.sums(matrix(*rows)))

    def test_known_limits_for_new_cases(self):
        for values, low, high in (
                ([1] * 9, 0.663733, 1), ([1] * 8 + [0.9], 0.660775, 0.999569), ([0.5] * 9, 0.362308, 0.637692),
                ([.7, .9, 1, .9, .8, .2, 1, 1, .8], 0.514027, 0.942733), ([1, 1, 1, 0, 1], 0.283582, 0.994949),
                ([.25, .75, .5], 0.151459, 0.848541), ([0, .1], 0.003807, 0.835270),
                ([.1] * 3 + [1] * 17, 0.648547, 0.970730), ([0] * 3, 0, 0.707598)):
            found = harness.bound(len(values), math.fsum(values), math.fsum(value * value for value in values))
            for limit, known in zip(found, (low, high)):
                self.assertAlmostEqual(limit, known, delta=1e-6, msg=values)

    def test_at_the_last_k_the_bound_is_that_of_clopper_and_pearson(self):
        # Of 5 of 9: the limits at which 5 or more, and 5 or fewer, have a chance of 2.5 %.
        low, high = harness.bound(9, 5.0, 5.0)
        tail = lambda p, ks: math.fsum(math.comb(9, k) * p ** k * (1 - p) ** (9 - k) for k in ks)
        self.assertAlmostEqual(tail(low, range(5, 10)), 0.025, 8)
        self.assertAlmostEqual(tail(high, range(6)), 0.025, 8)

    def test_beta_quantiles_at_the_ends_of_their_range(self):
        for share, a, b in ((0.025, 1e-3, 1e-3), (0.025, 1e6, 1e6), (0.025, 1e-3, 1e6), (0.025, 1e6, 1e-3), (0.025, 2, 3)):
            x = harness.beta_quantile(share, a, b)
            if 0 < x < 1 and 1e-300 < x:
                self.assertAlmostEqual(harness.beta_share(x, a, b)[0], share, 4, (a, b))
        self.assertAlmostEqual(harness.beta_quantile(0.025, 1, 1), 0.025, 9)
        self.assertAlmostEqual(harness.beta_quantile(0.025, 1, 4), 1 - 0.975 ** 0.25, 9)

    def test_known_bands(self):
        full, miss = "+" * 10, "-" + "+" * 9
        turns = ["+-" * 5] * 4
        for rows, factors, values in (
                ([full] * 9, (1.290875, 1), {"1": ((0.5659, 1), (0.5659, 1)), "10": ((0.5659, 1), (0.5659, 1))}),
                ([full] * 8 + [miss], (1.006197, 1.028144),
                 {"1": ((0.6587, 0.9999), (0.6587, 0.9999)), "10": ((0.6616, 1), (0.5152, 0.9997))}),
                (turns, (1.418711, 1.418711),
                 {"1": ((0.1403, 0.8597), (0.1403, 0.8597)), "2": ((0.1866, 0.9335), (0.0665, 0.8134))}),
                (["+", "-", "+", "+"], (1, 1), {"1": ((0.1941, 0.9937), (0.1941, 0.9937))})):
            found, band = harness.new_cases(*report.sums(matrix(*rows)))[1], self.band(*rows)
            self.assertEqual([round(factor, 6) for factor in found], list(factors))
            for k, (at, power) in values.items():
                self.assertEqual(band[k], {"pass_at_k": list(at), "pass_power_k": list(power)}, (rows, k))

    def test_bands_of_the_records(self):
        for name, values in (
                ("bayes", {"1": ((0.5131, 0.9435), (0.5131, 0.9435)), "3": ((0.6215, 0.9983), (0.3421, 0.8437)),
                           "10": ((0.6627, 1), (0.0741, 0.7028))}),
                ("smollm2-135m-instruct-q4_1", {"1": ((0.1377, 0.7542), (0.1377, 0.7542)),
                                                "10": ((0.2120, 0.8630), (0.0749, 0.7007))})):
            made = json.loads((HERE / "runs" / f"{name}-report.json").read_text(encoding="utf-8"))["systems"][0]
            for k, (at, power) in values.items():
                self.assertEqual(made["curve_band"][k], {"pass_at_k": list(at), "pass_power_k": list(power)}, (name, k))

    def test_the_lower_limit_holds_where_one_case_in_ten_never_passes(self):
        source, below = random.Random(20), 0
        truth = 0.9 * (1 - 6 / (10 * 11 * 12))      # of pass@3, with beta(9, 1) among those that may pass
        for _ in range(400):
            each = [0 if source.random() < 0.1 else source.betavariate(9, 1) for _ in range(9)]
            rows = [[source.random() < share for _ in range(10)] for share in each]
            below += report.curve_band(*report.sums(rows))["3"]["pass_at_k"][0] <= truth
        self.assertGreaterEqual(below, 0.94 * 400)

    def test_many_trials_have_a_band_at_some_k(self):
        band = self.band(*["+-" * 500] * 2)
        self.assertEqual(list(band)[:100], [str(k) for k in range(1, 101)])
        self.assertEqual(list(band)[-1], "1000")
        self.assertLess(len(band), 175)

    def test_what_narrows_is_told(self):
        self.assertEqual(self.rate(*["+-" * 5] * 4)["narrowed_by"], "trials")       # the cases agree in each trial
        self.assertEqual(self.rate("++++++++++", "++++++++++", "----------")["narrowed_by"], "cases")

    def test_the_published_pass_rate_has_both_intervals(self):
        self.assertEqual(self.rate(*QWEN.values()), {
            "value": 0.8556, "same_cases": [0.7684, 0.9136], "new_cases": [0.5325, 0.9758],
            "effective_trials": {"same_cases": 90.0}, "narrowed_by": "cases"})

    def test_one_trial_a_case_says_nothing_of_new_trials(self):
        rate = self.rate("+", "-", "+")
        self.assertIsNone(rate["same_cases"])
        self.assertIsNotNone(rate["new_cases"])

    def test_one_case_says_nothing_of_new_cases(self):
        rate = self.rate("++-")
        self.assertIsNone(rate["new_cases"])
        self.assertIsNotNone(rate["same_cases"])
        self.assertIsNone(self.band("++-"))

    def test_the_band_begins_with_the_interval_for_new_cases(self):
        for rows in (QWEN.values(), ("+-", "-+", "--"), ("+", "-", "+"), ("++", "++")):
            rate, band = self.rate(*rows), self.band(*rows)
            self.assertEqual(band["1"], {"pass_at_k": rate["new_cases"], "pass_power_k": rate["new_cases"]})

    def test_the_band_holds_the_curve_and_is_in_order(self):
        curve, band = report.curve(10, [10, 10, 7, 2, 10, 10, 10, 10, 8]), self.band(*QWEN.values())
        for k, values in curve.items():
            for key, value in values.items():
                low, high = band[k][key]
                self.assertTrue(low <= value <= high, (k, key))
        for limit in (0, 1):
            at, power = ([values[key][limit] for values in band.values()] for key in ("pass_at_k", "pass_power_k"))
            self.assertEqual((at, power), (sorted(at), sorted(power, reverse=True)))


def surely(*tokens):
    """Metadata with log-probabilities, of (token, its probability, {likely token: probability}) each."""
    return {"logprobs": {"tokens": [token for token, *_ in tokens], "logprobs": [round(math.log(p), 4) for _, p, *_ in tokens],
                         "tops": [[part for token, p in (rest[0] if rest else {}).items() for part in (token, round(math.log(p), 4))]
                                  for _, _, *rest in tokens]}}


def sure_record(replies, name="small", **manifest):
    """A run record of {case: "pf" verdicts, [metadata of each trial]}."""
    record = run_record({case: marks for case, (marks, _) in replies.items()}, name, **manifest)
    told = [metadata for _, each in replies.values() for metadata in each]
    for row, metadata in zip(record["results"], told):
        row["metadata"].update(metadata)
    return record


class Sureness(InFolder):
    """What log-probabilities say of one system."""
    white = {"\n": .5, "  ": .5}
    what = {"yes": .62, "no": .31}

    def test_perplexity_is_that_of_the_known_values(self):
        values = [math.log(p) for p in (.798, .664, .422, .621)]
        self.assertEqual(round(harness.perplexity(values), 3), 1.638)
        self.assertEqual(harness.perplexity([-1e9]), math.exp(700))
        unrounded = (.7981337, .6640151, .4217092, .6205589)
        self.assertAlmostEqual(harness.perplexity(list(map(math.log, unrounded))), math.prod(unrounded) ** -.25, 12)
        self.assertEqual(harness.perplexity([0.0, 0.0]), 1)

    def test_the_rank_statistic(self):
        self.assertEqual(harness.told_apart([1] * 10, [2] * 10), 1)
        self.assertEqual(harness.told_apart([1] * 10, [1] * 10), .5)
        self.assertEqual(harness.told_apart([1, 2, 3] * 4, [2] * 10), .5)
        self.assertEqual(harness.told_apart([1, 2, 3, 4] * 3, [3] * 10), .625)
        self.assertIsNone(harness.told_apart([1] * 9, [2] * 10))

    def test_a_fork_tells_the_ways_and_what_the_model_thought(self):
        start = ("{", 1)
        replies = [surely(start, (way, self.what[way], self.what)) for way in ("yes", "no", "yes", "yes")] + [surely(start)]
        record = sure_record({"one": ("+-++!", replies)})
        fork = harness.sureness(harness.compact(record))["cases"]["one"]["fork"]
        self.assertEqual((fork["after"], fork["tokens_before"], fork["fork"], fork["of"], fork["thought"]), ("{", 1, 1, 1, [["yes", .62], ["no", .31]]))
        self.assertEqual([(way["token"], way["probability"], way["pass"], way["fail"], way["incomplete"], way["trials"]) for way in fork["ways"]],
                         [("yes", .62, 3, 0, 0, [0, 2, 3]), ("(end)", None, 0, 0, 1, [4]), ("no", .31, 0, 1, 0, [1])])
        self.assertEqual(harness.fork_words(fork), [
            "parts after {   yes 62 %, no 31 %", "  yes 62 %: 3 passed, trials 0 2 3", "  (end): 1 incomplete, trial 4", "  no 31 %: 1 failed, trial 1"])

    def test_where_the_first_fork_is_white_space_the_one_that_decides_is_shown(self):
        marks, replies = "+-+-+-+-", []
        for trial, mark in enumerate(marks):
            way = "yes" if mark == "+" else "no"
            replies.append(surely((list(self.white)[trial // 2 % 2], .5, self.white), (way, self.what[way], self.what)))
        replies[6:] = [surely(("  ", .5, self.white), (way, self.what[way], self.what)) for way in ("yes", "no")]
        fork = harness.sureness(harness.compact(sure_record({"one": (marks, replies)})))["cases"]["one"]["fork"]
        self.assertEqual((fork["after"], fork["fork"], fork["of"], sum(way["pass"] for way in fork["ways"])), ("\n", 2, 3, 2))
        self.assertEqual([(way["pass"], way["fail"]) for way in fork["ways"]], [(0, 2), (2, 0)])
        self.assertTrue(harness.fork_words(fork)[0].endswith("(fork 2 of 3)"))
        alike = [surely(("\n" if trial % 2 else " ", .5), ("x", 1)) for trial in range(4)]
        first = harness.sureness(harness.compact(sure_record({"one": ("+++-", alike[:1] * 2 + alike[1:3])})))["cases"]["one"]["fork"]
        self.assertEqual([way["token"] for way in first["ways"]], ['" "', '"\\n"'])

    def test_a_reply_of_which_not_all_was_kept_does_not_end_where_it_is_cut(self):
        long = [("a", -1.0, {})] * harness.MOST_TOKENS
        self.assertEqual(harness.forks_of({0: long, 1: long + long}), [])
        self.assertEqual(harness.forks_of({0: long[:3], 1: long[:4]}), [(3, {None: [0], "a": [1]})])

    def test_medians_by_verdict_and_the_case_that_the_model_is_sure_of(self):
        record = sure_record({"lost": ("---", [surely(("a", .99), ("b", .96))] * 3), "won": ("+++", [surely(("a", .5))] * 3),
                              "open": ("---", [surely(("a", .9), ("b", .9))] * 3)})
        record["results"][-1]["metadata"].pop("logprobs")
        told = harness.sureness(harness.compact(record))
        self.assertEqual((told["trials"], told["of"], told["sure_of_failure"], told["forced"]), (8, 9, ["lost"], None))
        self.assertEqual((told["perplexity"], told["cases"]["won"]["perplexity"]), (
            {"pass": 1.9999, "fail": round((.99 * .96) ** -.5, 4)}, {"pass": 1.9999, "fail": None}))
        self.assertEqual(told["auc"], {"value": None, "pass": 3, "fail": 5})
        self.assertEqual(harness.sureness_words(told), [
            "sureness: perplexity 2.00 over passed trials and 1.03 over failed trials (medians; log-probabilities of 8 of 9 model calls)",
            "  too few to say how well that tells them apart (n 3 and 5, 10 of each needed)",
            "  lost always fails, and the same reply has a chance of 95 %: the model is sure of it, more trials change nothing"])

    def test_what_the_schema_forced_of_the_recorded_replies(self):
        log = self.folder / "wire.jsonl"
        bodies = [SURE["logprobs_gemma3_schema"], SURE["logprobs_smollm2_schema"]]
        with FakeOllama(usual=lambda request, number: {"body": bodies[number % 2]}), mock.patch("os.fsync"):
            status, _, err = called(bench, "--model", "smollm2:135m", "--logprobs", "--case", "charged-twice", "--trials", "4", "--log", log)
        self.assertEqual((status, err), (0, ""))
        told = json.loads(report_on(log, "--out", self.folder / "r.json") and (self.folder / "r.json").read_text())["systems"][0]["sureness"]
        taken = [[entry["logprob"] for entry in json.loads(body)["logprobs"]] for body in bodies]
        self.assertEqual(told["forced"], {"tokens": 2 * sum(value < math.log(.01) for values in taken for value in values), "replies": 4,
                                          "first": {"token": told["forced"]["first"]["token"], "tokens_before": 0, "replies": 2}})
        self.assertEqual(told["cases"]["charged-twice"]["trials"], 4)
        plain = run_record({"one": "+"}, metadata=surely(("{", .001)))
        self.assertIsNone(harness.sureness(harness.compact(plain))["forced"])

    def test_hostile_shapes_are_none(self):
        good = surely(("a", .5, {"a": .5}))["logprobs"]
        for odd in (1, "x", [], {}, {**good, "tokens": [1]}, {**good, "tokens": ["a", "b"]}, {**good, "logprobs": [.5]}, {**good, "logprobs": ["x"]},
                    {**good, "logprobs": [True]}, {**good, "tops": [["a"]]}, {**good, "tops": [[["a"], -1]]}, {**good, "tops": [{"a": 1}]},
                    {**good, "tokens": [[300]]}, {**good, "tokens": [[-1]]}, {**good, "tokens": 5}, {**good, "tops": 7}, {**good, "logprobs": [-1e99]}):
            record = run_record({"one": "+-"}, metadata={"logprobs": odd})
            self.assertIsNone(harness.sureness(harness.compact(record)), odd)
            self.assertNotIn("sureness", report.build_report([record])["systems"][0])
        self.assertEqual(harness.told_tokens({"logprobs": {"tokens": [[195], [169], "\ud800"], "logprobs": [-1, 0, -2.5]}}),
                         [("\udcc3", -1, {}), ("\udca9", 0, {}), ("?", -2.5, {})])
        self.assertEqual((harness.as_reply(["a", "\udcc3", "\udca9"]), harness.token_words("\udcc3"), harness.token_words(" a")), ("aé", "\\xc3", '" a"'))

    def test_the_text_shows_the_forks_of_a_log_and_a_redacted_report_does_not(self):
        system = EMBEDDED_SURE
        case_set = harness.load_cases(CASE_FILE, triage_task)
        with mock.patch("os.fsync"):
            bench.run_bench(system, case_set, ["development"], 10, self.log, task=triage_task)
        out = report_on(self.log, "--failures", "--case", "charged-twice").out
        self.assertIn('  parts after {"category": "   billing 73 %, account 20 %, delivery 5 %\n', out)
        self.assertIn("\n    account 20 %: 2 failed, trials 1 2\n", out)
        self.assertIn("tells passed from failed replies with an AUC of 0.93 (n 53 and 17;", report_on(self.log).out)
        report_on(self.log, "--redact", "--out", self.folder / "r.json")
        self.assertNotIn("sureness", (self.folder / "r.json").read_text())


class TwoSystemsSureness(unittest.TestCase):
    """What the token probabilities of two systems differ in."""

    def test_the_divergence_of_known_distributions(self):
        logs = [{token: math.log(p) for token, p in chances.items()} for chances in ({"a": .8, "b": .2}, {"a": .7, "b": .3})]
        self.assertAlmostEqual(harness.kl_divergence(*logs), .8 * math.log(.8 / .7) + .2 * math.log(.2 / .3), 12)
        self.assertEqual(round(harness.kl_divergence(*logs), 4), .0257)
        self.assertEqual(harness.kl_divergence(logs[0], logs[0]), 0)
        rounded = [{token: round(value, 4) for token, value in one.items()} for one in logs]
        self.assertAlmostEqual(harness.kl_divergence(*rounded), .0257, 3)

    def test_tokens_that_not_both_list_count_as_one_which_is_a_lower_bound(self):
        true = ({"a": .5, "b": .3, "c": .2}, {"a": .4, "b": .2, "c": .4})
        listed = ({"a": .5, "b": .3}, {"a": .4, "c": .4})
        full, bound = (harness.kl_divergence(*({token: math.log(p) for token, p in one.items()} for one in pair)) for pair in (true, listed))
        self.assertAlmostEqual(full, sum(p * math.log(p / true[1][token]) for token, p in true[0].items()), 12)
        self.assertAlmostEqual(bound, .5 * math.log(.5 / .4) + .5 * math.log(.5 / .6), 12)
        self.assertLess(bound, full)
        self.assertEqual(harness.kl_divergence({"a": -1.0}, {"b": -1.0}), 0)
        self.assertTrue(math.isfinite(harness.kl_divergence({"a": math.log(.5)}, {"a": 0.0})))
        self.assertTrue(math.isfinite(harness.kl_divergence({"a": 0.0}, {"a": -1e15})))

    def one(self, p, *ways, marks=None, **options):
        """A record of one case whose replies are { and a way, the model giving yes the probability p."""
        likely = {"yes": p, "no": round(1 - p, 4)}
        return sure_record({"one": (marks or "+" * len(ways), [surely(("{", .9, {"{": .9, "[": .1}), (way, likely.get(way, .01), likely), ("}", 1, {"}": 1}))
                                                               for way in ways])}, **options)

    def test_two_systems_of_one_tokeniser(self):
        made = report.build_report([self.one(.8, "yes", "yes", "no"), self.one(.4, "yes", "no", "no", name="other")])
        told = made["comparisons"][0]["tokens"]
        kl = .8 * math.log(.8 / .4) + .2 * math.log(.2 / .6)
        self.assertEqual({key: told[key] for key in ("tokenisers_differ", "trials", "identical", "parted_at", "tokens", "same_favourite", "favourites", "interval")},
                         {"tokenisers_differ": False, "trials": 3, "identical": 2, "parted_at": 2, "tokens": 7, "same_favourite": 5, "favourites": 7, "interval": None})
        self.assertAlmostEqual(told["divergence"], 2 * kl / 7, 3)
        self.assertAlmostEqual(told["largest"], kl, 3)
        self.assertEqual(told["perplexity"], [round((.9 * .8) ** (-1 / 3), 4), round((.9 * .6) ** (-1 / 3), 4)])
        words = report.comparison_words(made["comparisons"][0])
        self.assertIn("replies identical in 2 of 3 trials with log-probabilities of both; the others part at token 2 (median)", words)
        self.assertIn("the likeliest token is the same at 5 of 7 tokens", words)
        self.assertIn("a lower bound, since tokens that not both list count as one", words[-4])

    def test_by_case_the_largest_first_and_an_interval_over_cases(self):
        def record(*shares):
            each = {f"case{number}": ("++", [surely(("a", p, {"a": p, "b": round(1 - p, 4)}))] * 2) for number, p in enumerate(shares)}
            return harness.compact(sure_record(each))
        told = harness.divergence([record(.5, .5, .5), record(.5, .2, .4)])
        means = [.5 * math.log(.5 / p) + .5 * math.log(.5 / (1 - p)) for p in (.2, .4, .5)]
        self.assertEqual(list(told["cases"]), ["case1", "case2", "case0"])
        for case, mean in zip(told["cases"].values(), means):
            self.assertAlmostEqual(case["divergence"], mean, 3)
        half = 4.3027 * statistics.stdev(means) / math.sqrt(3)
        self.assertEqual([round(limit, 3) for limit in told["interval"]], [0, round(statistics.mean(means) + half, 3)])

    def test_other_tokenisers_tell_only_which_replies_are_identical(self):
        one = sure_record({"one": ("++", [surely(("yes", .9), ("!", .9)), surely(("no", .9), ("!", .9))])})
        other = sure_record({"one": ("++", [surely(("y", .9), ("es", .9), ("!", .9)), surely(("n", .9), ("o", .9), ("?", .9))])})
        made = report.build_report([one, other])["comparisons"][0]
        self.assertEqual({key: made["tokens"][key] for key in ("tokenisers_differ", "trials", "identical")}, {"tokenisers_differ": True, "trials": 2, "identical": 1})
        self.assertNotIn("divergence", made["tokens"])
        self.assertEqual(report.comparison_words(made)[-2:], ["replies identical in 1 of 2 trials with log-probabilities of both",
                                                              "the tokens cannot be compared: the two cut the same text into other tokens"])
        self.assertEqual([harness.cut_alike(["{", "a"], ["{", "b"]), harness.cut_alike(["{a"], ["{b"]), harness.cut_alike(["{", "ab", "c"], ["{", "a", "bd"])], [None, None, False])

    def test_where_one_of_them_tells_none_nothing_is_said(self):
        made = report.build_report([self.one(.8, "yes"), run_record({"one": "+"})])["comparisons"][0]
        self.assertNotIn("tokens", made)
        self.assertFalse([text for text in report.comparison_words(made) if "identical" in text])


class Planning(InFolder):
    """How wide the intervals of another size of run would be."""

    def of(self, name):
        path = HERE / "recorded" / f"{name}.jsonl"
        return harness.Planning.of(*harness.sums(bench.graded_logs([path], triage_task, harness.load_cases(CASE_FILE, triage_task), False).matrix()))

    def test_the_known_values(self):
        for name, parts, trials, cases, at_31, stays in (
                ("bayes", (0.811111, 0.107407, 0.052870, 0.001920), 26, 184, 0.1093, 0.206),
                ("smollm2-135m-instruct-q4_1", (0.422222, 0.037037, 0.233241, 0.000823), 42, 421, 0.1772, 0.307),
                ("gemma3-270m-pt-q4_k_m", (0.511111, 0.086420, 0.184969, 0.007407), 43, None, 0.1686, 0.284)):
            made = self.of(name)
            self.assertEqual(tuple(round(part, 6) for part in (made.p, made.w, made.b, made.a)), parts)
            self.assertEqual((made.trials_for(0.05), made.cases_for(0.05)), (trials, cases))
            self.assertEqual(round(harness.half_width(made.new(31, 10)), 4), at_31)
            self.assertEqual(round(harness.half_width(made.new(9, harness.MOST_PLANNED)), 3), stays)

    def test_where_no_number_of_cases_does_more_trials_do(self):
        made = self.of("gemma3-270m-pt-q4_k_m")
        cases, trials = made.size_for(0.05)
        self.assertLessEqual(harness.half_width(made.new(cases, trials)), 0.05)
        self.assertGreater(harness.half_width(made.new(cases - 1, trials)), 0.05)
        self.assertGreater(trials, 10)

    def test_the_present_size_gives_about_the_present_intervals(self):
        counts, each = [10, 7, 9, 2], [3, 3, 3, 2, 3, 3, 2, 3, 3, 3]
        made, found = harness.Planning.of(counts, each), harness.pass_rate(counts, each)
        for interval, key in ((made.same(4, 10), "same_cases"), (made.new(4, 10), "new_cases")):
            self.assertAlmostEqual(harness.half_width(interval), harness.half_width(found[key]), delta=0.03)

    def test_one_case_or_one_trial_plans_nothing(self):
        for grid in ({"a": "+-+"}, {"a": "+", "b": "-"}, {"a": "+-", "b": "+."}):
            made = report.system_report(run_record(grid))
            self.assertEqual((made["planning"], report.planning_words(made), report.planning_line(made)), (None, [], []))

    def test_what_is_reached_is_said_to_be(self):
        made = report.system_report(run_record({f"case-{number}": "+" * 20 for number in range(40)}), half=0.1)
        self.assertEqual(report.planning_words(made), ["these 40 cases: about 16 trials a case, which is reached",
                                                       "new cases: about 30 cases at 20 trials, which is reached"])
        self.assertEqual(report.planning_line(made), [])

    def test_the_time_is_that_of_trials_side_by_side(self):
        grid, words = {"a": "++-+", "b": "-++-"}, {"recorded_latency_s": 3.0}
        alone, beside = (report.system_report(run_record(grid, metadata={**words, "workers": count}))["planning"] for count in (1, 3))
        self.assertEqual((alone["s_per_trial"], beside["s_per_trial"]), (3.0, 1.0))

    def test_the_command_tells_the_plan_asked_for(self):
        harness.write(self.folder / "run.json", run_record({"a": "++-+", "b": "-++-"}))
        self.assertRegex(report_on(self.folder / "run.json", "--plan", "0.2").out,
                         "\nsmall, the pass rate of all 2 cases to within 0.2:\n  these 2 cases: about [0-9]+ trials a case, [0-9]+ trials more,")
        self.assertEqual(report_on(self.folder / "run.json", "--plan", "0").status, 2)
        harness.write(self.folder / "run.json", run_record({"a": "++"}))
        self.assertIn("\nsmall: what would narrow its intervals is unknown: it takes two cases and two\n  trials, all of them run\n",
                      report_on(self.folder / "run.json", "--plan", "0.2").out)


class Comparing(InFolder):
    def test_sign_flips_agree_with_listing_every_sign(self):
        for length in range(1, 6):
            signs = list(itertools.product((1, -1), repeat=length))
            for values in itertools.combinations_with_replacement(range(-4, 5), length):
                far = sum(abs(sum(map(int.__mul__, flips, values))) >= abs(sum(values)) for flips in signs)
                self.assertEqual(report.sign_flip_p(list(values)), far / len(signs), values)

    def test_a_transform_finds_what_counting_finds(self):
        draw = random.Random(5)
        for length, most in ((1, 3), (2, 50), (6, 1), (9, 1000), (40, 7), (150, 9), (400, 1), (30, 200)):
            for _ in range(4):
                values = [draw.randint(-most, most) + draw.choice((0, 1)) for _ in range(length)]
                sizes, observed = [abs(value) for value in values if value], abs(sum(values))
                if observed:
                    walked, inverted = harness.walked_p(sizes, observed), harness.inverted_p(sizes, observed)
                    self.assertAlmostEqual(walked, inverted, delta=1e-12, msg=values)

    def test_many_trials_are_compared_by_the_transform_and_the_report_says_so(self):
        made = report.compared([b"\1\1\1\0" * 500], [b"\0\1\1\1" * 499 + b"\0\0\1\0"], ["a"], "all")
        self.assertEqual((made["flips"], round(made["same_cases"]["p"], 4), made["p_by_inversion"]), ([501, 499], 0.9748, True))
        self.assertEqual(harness.inverted_p([1] * 1000, 900), 1e-12)
        titled = {**made, "a": "new", "b": "old", "model_calls": {"trials": 2000, "passed": [1, 1]}, "differs": [], "prompt_lines": [],
                  "left_out": [0, 0]}
        self.assertIn(report.INVERTED, " ".join(line.strip() for line in report.format_comparison(titled, report.PLAIN)))
        self.assertIn(report.INVERTED, " ".join(report.comparison_words(titled)))     # which the page shows too

    def test_published_values_of_mcnemar(self):
        for only_a, only_b, p in ((4, 0, 0.125), (16, 0, 0.000031), (3, 3, 1.0)):
            self.assertEqual(round(report.sign_flip_p([1] * only_a + [-1] * only_b), 6), p)

    def test_mcnemar_is_the_two_sided_binomial_test(self):
        for only_a, only_b in itertools.product(range(9), repeat=2):
            total = only_a + only_b
            tail = sum(math.comb(total, flips) for flips in range(min(only_a, only_b) + 1)) / 2 ** total
            self.assertEqual(report.sign_flip_p([1] * only_a + [-1] * only_b), min(1.0, 2 * tail))

    def test_fewer_than_six_units_never_show_a_difference(self):
        self.assertGreater(report.sign_flip_p([9] * (report.LEAST_UNITS - 1)), report.LEVEL)
        self.assertLess(report.sign_flip_p([9] * report.LEAST_UNITS), report.LEVEL)

    def test_the_published_systems(self):
        found = report.build_report([run_record(GEMMA, "gemma"), run_record(QWEN, "qwen")])["comparisons"]
        self.assertEqual(found, [{
            "a": "gemma", "b": "qwen", "difference": 0.1444,
            "same_cases": {"interval": [0.0908, 0.1981], "p": 0.003906, "trials_that_differ": 9},
            "new_cases": {"interval": [-0.0629, 0.3518], "p": 0.25, "cases_that_differ": 3},
            "folded": {"policy": "all", "only_a": ["password-changed", "product-advice", "late-order"], "only_b": [], "p": 0.25},
            "model_calls": {"trials": 90, "passed": [90, 77], "difference": 0.1444, "p": 0.003906}, "left_out": [0, 0],
            "differs": [["name", '"gemma"', '"qwen"']], "prompt_lines": [],
            "cases": 9, "trials_per_case": 10, "passed": [90, 77], "flips": [13, 0],
            "more_in_a": {"password-changed": [10, 7], "product-advice": [10, 2], "late-order": [10, 8]}, "more_in_b": {}}])
        self.assertEqual(list(found[0])[:6], ["a", "b", "difference", "same_cases", "new_cases", "folded"])

    def test_swapping_the_systems_swaps_the_signs(self):
        a, b = matrix("++-+", "+-++", "----"), matrix("+--+", "++++", "+---")
        one, other = report.compared(a, b, "pqr", "all"), report.compared(b, a, "pqr", "all")
        self.assertEqual(one["difference"], -other["difference"])
        self.assertEqual(one["same_cases"]["interval"], [-limit for limit in reversed(other["same_cases"]["interval"])])
        self.assertEqual(one["new_cases"]["p"], other["new_cases"]["p"])

    def test_units_that_do_not_vary_give_no_interval(self):
        found = report.compared(matrix("+++", "+++", "---"), matrix("---", "+++", "---"), "pqr", "all")
        self.assertEqual(found["same_cases"], {"interval": None, "p": 0.25, "trials_that_differ": 3})
        self.assertEqual(found["new_cases"]["interval"], [-1.0, 1.0])

    def test_policies_fold_a_case(self):
        for policy, passes in (("all", [False, False, False, True]), ("majority", [False, False, True, True]),
                               ("any", [False, True, True, True])):
            self.assertEqual([report.FOLDS[policy][1](passed, 4) for passed in (0, 2, 3, 4)], passes)

    def test_more_than_two_are_each_compared_with_the_first(self):
        found = report.build_report([run_record({"a": "++"}, name) for name in ("one", "two", "one")])["comparisons"]
        self.assertEqual([(entry["a"], entry["b"]) for entry in found], [("one (1)", "two"), ("one (1)", "one (2)")])

    def test_different_trial_counts_are_compared_on_what_both_have(self):
        short, long = run_record({"a": "+-+", "b": "-++"}, "one"), run_record({"a": "++-+-.", "b": "++++-."}, "two")
        found = report.build_report([short, long])["comparisons"][0]
        same = report.build_report([short, run_record({"a": "++-", "b": "+++"}, "two")])["comparisons"][0]
        self.assertEqual(found, {**same, "left_out": [0, 3]})
        self.assertEqual(report.shared_words(found), ["compared on the trials that both have, 0 to 2; 3 more of two left out"])
        self.assertEqual(report.shared_words(same), [])

    def test_several_comparisons_have_their_p_adjusted_by_holm(self):
        found = [{scope: {"p": p} for scope in ("same_cases", "new_cases", "model_calls")} for p in (0.01, 0.04, 0.03, 0.005)]
        report.adjust(found)
        self.assertEqual([one["new_cases"]["p_adjusted"] for one in found], [0.03, 0.06, 0.06, 0.02])     # as R's p.adjust has it
        two, three = (report.build_report([run_record({"a": "++++++" if number else "------"}, str(number)) for number in range(count)])
                      for count in (2, 3))
        self.assertNotIn("p_adjusted", two["comparisons"][0]["same_cases"])
        self.assertEqual([one["same_cases"]["p_adjusted"] for one in three["comparisons"]], [0.0625, 0.0625])
        self.assertIn("no difference shown (p = 0.0625)", report.finding(three["comparisons"][0]))
        self.assertIn(report.HOLM, report.comparison_words(three["comparisons"][0]))
        self.assertNotIn(report.HOLM, report.comparison_words(two["comparisons"][0]))

    def test_adjusted_p_are_multiples_of_the_exact_ones(self):
        old, new = "+++++++++", "-------++"      # p = 2 / 2 ** 7 = 0.015625, and twice and thrice that
        three = report.build_report([run_record({"a": old}, "1"), run_record({"a": "------+++"}, "2"), run_record({"a": new}, "3")])
        self.assertEqual([[one["same_cases"][key] for key in ("p", "p_adjusted")] for one in three["comparisons"]],
                         [[0.03125, 0.03125], [0.01562, 0.03125]])

    def test_two_systems_of_which_nothing_reaches_a_model_are_compared(self):
        for name in ("one", "two"):
            harness.write(self.folder / f"{name}.json", run_record({"a": "++", "b": "+-"}, name, refuses=("a", "b")))
        made = report_on(self.folder / "one.json", self.folder / "two.json", "--out", self.folder / "page.html")
        self.assertEqual((made.status, made.err), (0, ""))
        self.assertIn("\n2 two   0.750  0.03 to 1.00  0.00 to 1.00  1/1/0   0.500  +0.000  1\n", made.out)
        self.assertRegex(made.out, r"\npassed 3 and 3 of 4: \+0.000 +95 % interval\n")
        self.assertNotIn("model calls only", made.out)

    def test_the_baseline_of_several_systems_is_named_by_label_name_or_path(self):
        records, paths = [run_record({"a": "+-"}, name) for name in ("one", "two", "two")], ["1.json", "2.json", "3.json"]
        for name, first in ((None, "one"), ("two (2)", "two (2)"), ("two", "two (1)"), ("2.json", "two (1)")):
            made = report.build_report(records, paths, reference=name)
            self.assertEqual((made["reference"], {one["a"] for one in made["comparisons"]}, len(made["comparisons"])), (first, {first}, 2))
        with self.assertRaisesRegex(RunError, '^--baseline ones: there is no such system; did you mean "one"'):
            report.build_report(records, paths, reference="ones")

    def test_a_gate_compares_with_its_own_baseline_whatever_the_table_does(self):
        records = [run_record({"a": "+-"}, name) for name in ("one", "two", "old")]
        made = report.build_report(records, baseline=True, reference="two")
        self.assertEqual([(one["a"], one["b"]) for one in made["comparisons"]], [("two", "one"), ("one", "old (baseline)")])

    def test_cases_that_separate_the_systems_come_first(self):
        grids = ({"a": "++", "b": "+-", "c": "--", "d": "+."}, {"a": "++", "b": "++", "c": "++", "d": "-."})
        made = report.build_report([run_record(grid, name) for grid, name in zip(grids, ("one", "two"))])
        self.assertEqual((made["separating"], report.across_order(made)), (["c", "d", "b"], ["c", "d", "b", "a"]))

    def test_a_stopped_run_is_not_compared(self):
        found = report.build_report([run_record({"a": "++"}, "one"), run_record({"a": "+."}, "two")])["comparisons"]
        self.assertEqual(found[0]["not_compared"], "1 trial of two not run")


class WhatDiffers(unittest.TestCase):
    def found(self, one=None, two=None, **parts):
        records = [run_record({"a": "+-"}, "x", metadata=metadata, provenance=provenance) for metadata, provenance in (one or (None, {}), two or (None, {}))]
        for record, number in zip(records, (0, 1)):
            record["manifest"]["system"].update({key: values[number] for key, values in parts.items()})
        return bench.what_differs(list(map(harness.compact, records)), ("old", "new"))

    def test_the_same_system_twice(self):
        found = self.found()
        self.assertEqual(found, {"differs": [], "prompt_lines": []})
        self.assertEqual(report.differs_words(found), ["the same system, twice: what they differ in is its own noise"])

    def test_model_options_server_and_hardware(self):
        found = self.found(({"server_version": "0.33.0", "workers": 1}, {"bench_version": "2", "environment": {"hardware": "laptop"}}),
                           ({"server_version": "0.34.0", "workers": 4}, {"bench_version": "3", "environment": {"hardware": "desktop"}}),
                           name=("m:1b", "m:2b"), model=("m:1b@1", "m:2b@2"), options=({"temperature": 1.0, "think": False}, {"temperature": 0.5, "think": True}))
        self.assertEqual(found["differs"], [
            ["model", '"m:1b@1"', '"m:2b@2"'], ["options.temperature", "1.0", "0.5"], ["options.think", "false", "true"],
            ["bench_version", '"2"', '"3"'], ["server version", '"0.33.0"', '"0.34.0"'], ["number of workers", '"1"', '"4"'],
            ["hardware", '"laptop"', '"desktop"']])

    def test_a_prompt_is_shown_by_its_lines(self):
        prompts = "Sort it.\nBe kind.\nAnswer.", "Sort it.\nBe brief.\nAnswer."
        lines = ["--- old", "+++ new", "@@ -1,3 +1,3 @@", " Sort it.", "-Be kind.", "+Be brief.", " Answer."]
        self.assertEqual(self.found(prompt=prompts), {"differs": [], "prompt_lines": lines})
        one, two = ((None, {"asked": {"messages": [{"role": "user", "content": text}], "schema": {"type": kind}}})
                    for text, kind in zip(prompts, ("object", "array")))
        found = self.found(one, two, prompt=("sha256:1", "sha256:2"), schema=("1", "2"))
        self.assertEqual(found, {"differs": [["schema.type", '"object"', '"array"']], "prompt_lines": lines[:3] + [
            " user: Sort it.", "-user: Be kind.", "+user: Be brief.", " user: Answer."]})
        self.assertEqual(report.differs_words(found)[:4], ["what differs:", '  schema.type: "object" and "array"', "  prompt:", "    --- old"])
        self.assertEqual(report.differs_words({"differs": [["hardware", "null", '"rack"']], "prompt_lines": []}), ["what differs:", '  hardware: none and "rack"'])

    def test_odd_provenance_does_no_harm(self):
        for odd in (5, [], {"asked": 5}, {"asked": {"messages": 5}}, {"environment": 5}, {"asked": {"messages": [5]}}):
            self.assertIsInstance(self.found((None, odd), (None, {"asked": {"messages": [{"role": "user", "content": "x"}]}}))["differs"], list)



class Reports(unittest.TestCase):
    def test_keys_stand_in_the_order_of_the_format(self):
        made = report.build_report([run_record({"a": "+-"})])
        self.assertEqual(list(made), ["report_version", "case_set", "systems", "comparisons", "gates", "task", "policy"])
        self.assertEqual(list(made["systems"][0]), [
            "system", "recording_sha256", "trials_per_case", "cases", "verdicts", "not_run", "failures_by_check",
            "incomplete_by_error", "per_case", "flaky_cases", "never_passed", "curve", "latency_s", "pass_rate",
            "model_calls", "passed_per_trial", "curve_band", "curve_if_incomplete_passed", "curve_complete_rounds",
            "costs", "runtimes", "parallel_calls", "provenance", "unsteady_cases", "steadiness", "planning", "label"])

    def test_published_counts_give_the_published_report(self):
        made = report.system_report(run_record(QWEN, "qwen", REFUSES))
        self.assertEqual([values["pass_at_k"] for values in made["curve"].values()], PASS_AT_K)
        self.assertEqual([values["pass_power_k"] for values in made["curve"].values()], PASS_POWER_K)
        self.assertEqual(list(made["curve"]), [str(k) for k in range(1, 11)])
        self.assertEqual(made["verdicts"], {"pass": 77, "fail": 13})
        self.assertEqual(made["failures_by_check"], {"triage-outcome": 11, "failure-criteria": 2})
        self.assertEqual(made["flaky_cases"], ["password-changed", "product-advice", "late-order"])
        self.assertEqual(made["model_calls"], {"trials": 70, "pass": 57, "rate": 0.8143, "same_cases": [0.7077, 0.8881],
                                               "new_cases": [0.4429, 0.9673], "narrowed_by": "cases",
                                               "effective_trials": {"same_cases": 70.0}, "cases": 7})
        self.assertEqual(made["steadiness"], {"always": 6, "sometimes": 3, "never": 0, "not run": 0})

    def test_a_perfect_system_has_a_flat_curve(self):
        made = report.system_report(run_record(GEMMA, "gemma", REFUSES))
        self.assertEqual(set(map(str, made["curve"].values())), {"{'pass_at_k': 1.0, 'pass_power_k': 1.0}"})
        self.assertEqual((made["flaky_cases"], made["never_passed"], made["failures_by_check"]), ([], [], {}))

    def test_passed_per_trial_is_what_one_trial_alone_would_have_said(self):
        record = run_record(QWEN, "qwen", REFUSES)
        self.assertEqual(report.system_report(record)["passed_per_trial"], [8, 8, 8, 7, 8, 7, 8, 7, 9, 7])
        self.assertIn("  one trial alone would have said 7 to 9 of 9\n", "\n".join(self.text(record)) + "\n")

    def text(self, record):
        made = report.build_report([record])
        return report.format_system(made["systems"][0], record, PLAIN)

    def stopped(self, ran=59):
        """The published run, stopped after so many of its 90 trials in trial-major order."""
        cases = list(QWEN)
        return run_record({case_id: "".join(mark if trial * 9 + place < ran else "." for trial, mark in enumerate(QWEN[case_id]))
                           for place, case_id in enumerate(cases)}, "qwen", REFUSES)

    def test_a_stopped_run_reports_what_ran(self):
        made = report.system_report(self.stopped())
        self.assertEqual((made["not_run"], made["verdicts"]), (31, {"pass": 50, "fail": 9, "incomplete": 31}))
        self.assertEqual(made["incomplete_by_error"], {"NotRun": 31})
        self.assertEqual({10 - case["not_run"] for case in made["per_case"].values()}, {6, 7})
        self.assertEqual({case["incomplete"] - case["not_run"] for case in made["per_case"].values()}, {0})

    def test_a_stopped_run_has_no_estimate_of_the_whole(self):
        made = report.system_report(self.stopped())
        for key in ("curve", "pass_rate", "curve_band", "curve_if_incomplete_passed", "passed_per_trial"):
            self.assertIsNone(made[key], key)
        self.assertEqual(made["model_calls"], {"trials": 47, "pass": 38, "rate": None, "cases": 7})

    def test_trials_that_were_not_run_are_not_flaky(self):
        grid = {case_id: "+++++++..." if place < 5 else "++++++...." for place, case_id in enumerate(GEMMA)}
        made = report.system_report(run_record(grid, "gemma"))
        self.assertEqual((made["not_run"], made["flaky_cases"], made["never_passed"]), (31, [], []))
        self.assertIsNone(made["curve"])

    def test_complete_rounds_are_a_smaller_run(self):
        made = report.system_report(self.stopped())["curve_complete_rounds"]
        self.assertEqual(made["rounds"], 6)
        self.assertEqual(made["curve"], report.system_report(run_record({name: row[:6] for name, row in QWEN.items()}))["curve"])

    def test_a_run_without_a_complete_round_has_no_curve_at_all(self):
        made = report.system_report(run_record({"a": "+.", "b": ".."}))
        self.assertEqual(made["curve_complete_rounds"], {"rounds": 0, "curve": None})
        self.assertIsNone(made["per_case"]["b"]["interval"])

    def test_a_whole_run_has_no_complete_rounds_of_its_own(self):
        self.assertIsNone(report.system_report(run_record({"a": "+-"}))["curve_complete_rounds"])

    def test_report_counts_flaky_cases_and_latency(self):
        record = run_record({"steady": "+++", "flaky": "+-!", "never": "-!-", "refused": "+++"}, refuses=("refused",))
        for number, row in enumerate(record["results"]):
            row["metadata"]["recorded_latency_s"] = number / 8
        made = report.system_report(record)
        self.assertEqual((made["flaky_cases"], made["never_passed"]), (["flaky"], ["never"]))
        self.assertEqual(made["latency_s"], {"trials": 7, "median": 0.375, "p90": 1.0})
        self.assertEqual(made["per_case"]["flaky"], {"class": "billing", "pass": 1, "fail": 1, "incomplete": 1, "not_run": 0,
                                                     "interval": [0.0615, 0.7923], "distinct_outputs": 2,
                                                     "latency_s": {"trials": 2, "median": 0.375, "p90": 0.5}})
        self.assertEqual(list(made["verdicts"].items()), [("pass", 7), ("fail", 3), ("incomplete", 2)])

    def test_no_output_no_latency(self):
        self.assertEqual(report.system_report(run_record({"a": "!!"}))["latency_s"], {"trials": 0, "median": None, "p90": None})

    def test_incomplete_trials_bound_the_curve_from_above(self):
        made = report.system_report(run_record({"a": "++!", "b": "-+-"}))
        self.assertEqual((made["curve"]["1"]["pass_at_k"], made["curve_if_incomplete_passed"]["1"]["pass_at_k"]), (0.5, 0.6667))
        self.assertIsNone(report.system_report(run_record({"a": "++-"}))["curve_if_incomplete_passed"])

    def test_a_case_that_must_be_refused_says_so(self):
        cases = report.system_report(run_record({"a": "+", "b": "+"}, refuses=("b",)))["per_case"]
        self.assertEqual([case.get("expects_rejection") for case in cases.values()], [None, True])

    def test_causes_come_most_frequent_first(self):
        record = run_record({"a": "!!-!"})
        for row, reason in zip(record["results"], ("A: x: y", "B: z", None, "B: w")):
            row["reason"] = reason or row["reason"]
        self.assertEqual(list(report.system_report(record)["incomplete_by_error"].items()), [("B", 2), ("A", 1)])

    def test_costs_are_those_of_all_trials_that_ran(self):
        tokens = {"prompt_eval_count": 100, "eval_count": 20, "eval_duration_s": 0.25, "load_duration_s": 0.1}
        made = report.costs(one_case([result("a", trial, mark, **tokens) for trial, mark in enumerate("++-!")]), (1.0, 2.0))
        self.assertEqual(made, {
            "tokens_in": {"trials": 4, "total": 400, "median": 100, "p90": 100},
            "tokens_out": {"trials": 4, "total": 80, "median": 20, "p90": 20}, "tokens_per_s": {"trials": 4, "median": 80.0, "p90": 80.0},
            "time_s": {"trials": 4, "total": 2.0, "median": 0.5, "p90": 0.5, "share_not_passed": 0.5, "per_passed": 1.0},
            "model_s": {"trials": 3, "total": 1.2, "median": 0.4, "p90": 0.4},
            "load_s": {"trials": 4, "total": 0.4, "median": 0.1, "p90": 0.1},
            "money": {"price_in": 1.0, "price_out": 2.0, "total": 0.00056, "per_passed": 0.00028}})

    def test_model_time_is_what_the_server_worked_and_not_what_we_waited(self):
        record = one_case([result("a", trial, "+", load_duration_s=0.1, **({"total_duration_s": 0.3} if trial else {})) for trial in range(3)])
        self.assertEqual(report.costs(record)["model_s"], {"trials": 3, "total": 0.8, "median": 0.2, "p90": 0.4})

    def test_costs_that_the_trials_do_not_tell_are_none(self):
        made = report.costs(one_case([result("a", 0, "-")]), (1.0, 2.0))
        self.assertEqual([key for key, value in made.items() if value is None], ["tokens_in", "tokens_out", "tokens_per_s", "model_s", "load_s"])
        self.assertEqual(made["money"], {"price_in": 1.0, "price_out": 2.0, "total": None, "per_passed": None})

    def test_runtimes_count_what_the_trials_ran_on(self):
        rows = [result("a", 0, "+", server_version="0.33.0", workers=1), result("a", 1, "!", server_version="0.34.1", workers=1),
                result("a", 2, "+", workers=4)]
        self.assertEqual(report.runtimes(one_case(rows)), {"server_version": {"0.33.0": 1, "0.34.1": 1}, "workers": {"1": 2, "4": 1}})


class Refusals(unittest.TestCase):
    def assert_refused(self, text, *records):
        with self.assertRaises(RunError) as caught:
            report.build_report(list(records), ["A.json", "B.json"])
        self.assertEqual(str(caught.exception), text)

    def test_runs_of_two_tasks_or_case_sets(self):
        one = run_record({"a": "+"})
        for key, what in (("task", "task"), ("case_set", "case set")):
            other = run_record({"a": "+"}, **{key: {"name": "large", "sha256": "f" * 64}})
            self.assert_refused(f"B.json is of the {what} large ffffffffffff, A.json of small 000000000000: report them apart", one, other)

    def test_a_run_that_lacks_a_case_of_the_other(self):
        self.assert_refused("B.json and A.json hold different cases: one of them is not whole",
                            run_record({"a": "+", "b": "+"}), run_record({"a": "+"}))

    def test_any_split_but_development(self):
        self.assert_refused('A.json: splits is ["held-out"]: only runs of the development split are reported',
                            run_record({"a": "+"}, splits=["held-out"]))

    def test_another_harness_version(self):
        self.assert_refused("A.json: harness_version is 0, this report reads 1: grade its recording again with harness.py run",
                            run_record({"a": "+"}, harness_version="0"))

    def test_a_manifest_that_was_edited(self):
        for changes, problem in (
                ({"trials": "3"}, 'manifest: trials is "3", not a whole number'), ({"trials": True}, "manifest: trials is true, not a whole number"),
                ({"trials": 0}, "trials is 0, not a whole number from 1 up"), ({"splits": "development"}, 'manifest: splits is "development", not a list'),
                ({"system": {"model": "m"}}, "manifest: system: name is missing"), ({"task": {"name": 1}}, "manifest: task: name is 1, not text"),
                ({"recording_sha256": None}, "manifest: recording_sha256 is null, not text")):
            with self.subTest(problem=problem):
                self.assert_refused(f"A.json: {problem}", run_record({"a": "+"}, **changes))

    def test_a_row_that_was_edited(self):
        for changes, problem in (
                ({"verdict": "passed"}, 'verdict is "passed", not one of pass, fail, incomplete'), ({"trial": 1.0}, "trial is 1.0, not a whole number"),
                ({"check": "x"}, 'check is "x" with the verdict pass'), ({"verdict": "fail"}, "check is null with the verdict fail"),
                ({"verdict": "incomplete"}, "reason is null with the verdict incomplete"), ({"split": "held-out"}, "expects_rejection is not true, or the split is not development"),
                ({"expects_rejection": False}, "expects_rejection is not true, or the split is not development"),
                ({"metadata": {}}, "metadata.recorded_latency_s is missing"), ({"metadata": []}, "metadata is [], not an object"),
                ({"metadata": {"recorded_latency_s": -1}}, "metadata.recorded_latency_s is -1, not a number from 0 to 1e+15"),
                ({"metadata": {"recorded_latency_s": 1, "eval_count": "9"}}, 'metadata.eval_count is "9", not a number from 0 to 1e+15'),
                ({"case_id": None}, "case_id is null, not text"),
                ({"output": json.loads("[" * 200 + "]" * 200)}, "output is missing or nested too deeply")):
            with self.subTest(problem=problem):
                record = run_record({"a": "++"})
                record["results"][1].update(changes)
                self.assert_refused(f"A.json: results[1]: {problem}", record)

    def test_rows_that_do_not_make_the_plan(self):
        def without(place):
            record = run_record({"a": "++", "b": "++"})
            del record["results"][place]
            return record
        twice = run_record({"a": "++", "b": "++"})
        twice["results"].insert(1, twice["results"][0])
        again = run_record({"a": "++"})
        again["results"] *= 2
        empty = run_record({"a": "++"})
        empty["results"] = []
        mixed = run_record({"a": "++"})
        mixed["results"][1]["class"] = "delivery"
        for record, problem in (
                (without(1), "results[1] is trial 0 of b where trial 1 of a belongs: a row is missing, doubled or out of place"),
                (without(3), "results end 1 trial short of the 2 of b"), (twice, "results[1] is trial 0 of a where trial 1 of a belongs: a row is missing, doubled or out of place"),
                (again, "results[2]: case a comes a second time"), (empty, "it holds no results"),
                (mixed, "results[1]: class or expects_rejection is not that of the case's trial 0")):
            with self.subTest(problem=problem):
                self.assert_refused(f"A.json: {problem}", record)

    def test_values_that_are_no_run_record(self):
        for value, problem in (([], "neither a run record nor a log: it is not an object"), ({"manifest": {}}, "neither a run record nor a log: results is missing"),
                               ({"responses": {}}, "it is a recording: grade it with harness.py run, or give the log itself"),
                               ({"manifest": {}, "results": []}, "manifest: harness_version is missing")):
            self.assert_refused(f"A.json: {problem}", value)

    def test_every_value_replaced_by_another_is_a_report_or_a_refusal(self):
        whole = run_record({"a": "+-", "b": "!."}, refuses=("b",), metadata={"seed": 1, "eval_count": 3})

        def places(value, path=()):
            if isinstance(value, (dict, list)):
                for key in value if isinstance(value, dict) else range(len(value)):
                    yield (*path, key)
                    yield from places(value[key], (*path, key))

        for path in places(whole):
            for value in (None, True, -1, 0.5, "text", [], {}, [[]], {"a": None}):
                record = copy.deepcopy(whole)
                target = record
                for key in path[:-1]:
                    target = target[key]
                target[path[-1]] = value
                with contextlib.suppress(RunError):
                    made = report.build_report([record])
                    report.format_system(made["systems"][0], record, PLAIN)


class Gates(InFolder):
    def gate(self, *words, grid={"a": "++++", "b": "+-++"}, baseline=None):
        """The verdicts of the gates in a report, after checking the exit status against them."""
        path, out = self.folder / "run.json", self.folder / "out.json"
        harness.write(path, run_record(grid, "new"))
        if baseline:
            harness.write(self.folder / "base.json", run_record(baseline, "old"))
            words = (*words, "--no-worse-than", self.folder / "base.json")
        ended = report_on(path, *words, "--out", out)
        verdicts = harness.read_json(out)["gates"]
        self.assertEqual((ended.err, ended.status), ("", 0 if all(verdict["met"] for verdict in verdicts) else 1))
        return verdicts

    def test_without_a_gate_any_verdict_is_a_finished_run(self):
        self.assertEqual(self.gate(grid={"a": "--"}), [])

    def test_require_names_the_cases_and_their_first_failing_trial(self):
        self.assertEqual(self.gate("--require", "all"), [
            {"gate": "--require all", "met": False, "detail": "every trial passes in 1 of 2 cases",
             "cases": ["b [3/4 trials] trial 1: triage-outcome: category is other"]},
            {"gate": "--allow-incomplete 0", "met": True, "detail": "0 incomplete trials"}])

    def test_no_system_hides_the_gate_of_another_behind_its_name(self):
        paths = [self.folder / f"{number}.json" for number in range(3)]
        for path, name, marks in zip(paths, ("m (1)", "m", "m"), ("--", "++", "++")):
            harness.write(path, run_record({"a": marks}, name))
        made = report_on(*paths, "--require", "all", "--out", self.folder / "out.json")
        self.assertEqual(made.status, 1)
        self.assertEqual([(gate["gate"], gate["met"]) for gate in harness.read_json(self.folder / "out.json")["gates"][::2]], [
            ("--require all, m (1)", False), ("--require all, m (2)", True), ("--require all, m (3)", True)])

    def test_require_majority_is_strictly_more_than_half(self):
        self.assertTrue(self.gate("--require", "majority", grid={"a": "++-", "b": "+++"})[0]["met"])
        self.assertFalse(self.gate("--require", "majority", grid={"a": "++--", "b": "++++"})[0]["met"])
        self.assertTrue(self.gate("--require", "any", grid={"a": "---+"})[0]["met"])

    def test_least_values_are_compared_with_the_unrounded_estimate(self):
        self.assertEqual([(verdict["gate"], verdict["met"], verdict["detail"]) for verdict in
                          self.gate("--min", "pass@1=0.875", "--min", "pass^2=0.76", "--min", "pass@5=0.1")[:3]],
                         [("--min pass@1=0.875", True, "0.8750, 2 cases x 4 trials"),
                          ("--min pass^2=0.76", False, "0.7500, 2 cases x 4 trials"),
                          ("--min pass@5=0.1", False, "k is 5, and the run has 4 trials a case")])

    def test_a_sum_of_tenths_meets_its_own_value(self):
        self.assertTrue(self.gate("--min", "pass@1=0.7", grid={"a": "+++++++---", "b": "+++++++---", "c": "+++++++---"})[0]["met"])

    def test_incomplete_trials_fail_a_gate_unless_allowed(self):
        grid = {"a": "+++!", "b": "++++"}
        self.assertEqual([verdict["met"] for verdict in self.gate("--min", "pass@1=0.5", grid=grid)], [True, False])
        self.assertEqual([verdict["met"] for verdict in self.gate("--min", "pass@1=0.5", "--allow-incomplete", "1", grid=grid)], [True, True])

    def test_a_trial_that_was_not_run_fails_every_gate(self):
        verdicts = self.gate("--require", "any", "--min", "pass@1=0", "--allow-incomplete", "9", grid={"a": "+++."}, baseline={"a": "++++"})
        self.assertEqual([(verdict["met"], verdict["detail"]) for verdict in verdicts],
                         [(False, "1 planned trial not run")] * 3 + [(False, "new: 1 planned trial not run")])

    def test_a_check_that_broke_fails_every_gate(self):
        grid = {"a": "+++!", "b": "++++"}
        with mock.patch.dict(MARKS, {"!": ("incomplete", None, "CheckError: check total raised TypeError: it: went wrong")}):
            verdicts = self.gate("--require", "any", "--min", "pass@1=0", "--allow-incomplete", "9", grid=grid, baseline={"a": "++++", "b": "++++"})
            told = "check total raised TypeError in 1 trial"
            self.assertEqual([(verdict["met"], verdict["detail"]) for verdict in verdicts], [(False, told)] * 3 + [(False, f"new: {told}")])
            last = self.gate(grid={"a": "++++", "b": "++++"}, baseline=grid)[-1]
        self.assertEqual((last["met"], last["detail"]), (False, f"old (baseline): {told}"))

    def test_no_worse_than_fails_where_the_first_is_shown_to_be_worse(self):
        verdict = self.gate(grid={"a": "------", "b": "++++++"}, baseline={"a": "++++++", "b": "++++++"})[-1]
        self.assertEqual(verdict, {
            "gate": "--no-worse-than old (baseline)", "met": False, "cases": ["a [0/6 trials] trial 0: triage-outcome: category is other (was 6/6)"],
            "detail": "difference -0.500 on the same cases, p = 0.0312; asked: is it shown to be worse"})

    def test_a_gate_that_cannot_fail_says_so(self):
        records = [run_record({"a": "-----"}), run_record({"a": "+++++"})]
        comparison, record = report.comparison(records, ("new", "old"), "all"), harness.compact(records[0])
        gate = report.no_worse_gate(comparison, None, record)
        self.assertTrue(gate["met"])
        self.assertTrue(gate["detail"].endswith("which 5 trials cannot show: run 6 or more, or give --margin"), gate["detail"])
        self.assertFalse(report.no_worse_gate(comparison, 0.05, record)["met"])

    def test_no_worse_than_holds_where_nothing_is_shown(self):
        self.assertTrue(self.gate(grid={"a": "----+"}, baseline={"a": "+++++"})[-1]["met"])

    def test_a_margin_asks_for_more(self):
        grid, base = {"a": "----+", "b": "+++++"}, {"a": "+++++", "b": "+++++"}
        self.assertEqual(self.gate("--margin", "0.3", grid=grid, baseline=base)[-1]["detail"],
                         "difference -0.400 on the same cases, p = 0.125; asked: is it shown to be less than 0.3 worse (lower limit -0.678)")
        self.assertFalse(self.gate("--margin", "0.3", grid=grid, baseline=base)[-1]["met"])
        self.assertTrue(self.gate("--margin", "0.7", grid=grid, baseline=base)[-1]["met"])

    def test_runs_without_variation_meet_a_margin_only_with_enough_trials(self):
        self.assertTrue(self.gate("--margin", "0.1", grid={"a": "++++++"}, baseline={"a": "++++++"})[-1]["met"])
        few = self.gate("--margin", "0.1", grid={"a": "+++++"}, baseline={"a": "+++++"})[-1]
        self.assertEqual((few["met"], few["detail"]), (False, "difference +0.000 on the same cases, p = 1; asked: is it shown to be "
                                                              "less than 0.1 worse (no lower limit from 5 trials)"))

    def test_the_baseline_is_compared_and_not_reported(self):
        self.gate(baseline={"a": "++++", "b": "++++"})
        made = harness.read_json(self.folder / "out.json")
        self.assertEqual([system["label"] for system in made["systems"]], ["new"])
        self.assertEqual([entry["b"] for entry in made["comparisons"]], ["old (baseline)"])

    def test_gates_hold_for_every_system_that_is_reported(self):
        one, two = self.folder / "one.json", self.folder / "two.json"
        harness.write(one, run_record({"a": "++"}, "one"))
        harness.write(two, run_record({"a": "+-"}, "two"))
        ended = report_on(one, two, "--require", "all")
        self.assertEqual(ended.status, 1)
        self.assertIn("+ --require all, one: met, every trial passes in 1 of 1 case\n", ended.out)
        self.assertIn("- --require all, two: NOT MET, every trial passes in 0 of 1 case\n"
                      "  a [1/2 trials] trial 1: triage-outcome: category is other\n", ended.out)


class Text(unittest.TestCase):
    def lines(self, *records, term=PLAIN, **options):
        made = report.build_report(list(records), **options)
        return "\n".join(report.format_system(made["systems"][0], records[0], term))

    def comparison(self, a, b, **options):
        made = report.build_report([run_record(a, "new"), run_record(b, "old")], **options)
        return "\n".join(report.format_comparison(made["comparisons"][0], PLAIN))

    def test_the_published_report_in_one_screen(self):
        self.assertEqual(self.lines(run_record(QWEN, "qwen", REFUSES)), """\
qwen
9 cases x 10 trials: 77 passed, 13 failed

9 cases: 6 always, 3 sometimes, 0 never passed; 2 need no model call
passed 57 of 70 model calls: 0.814                  95 % interval
  these 7 cases, new trials                         0.71 to 0.89
  new cases like these                              0.44 to 0.97
  with the 2 cases that need none: 77 of 90, 0.856  0.77 to 0.91
  one trial alone would have said 7 to 9 of 9
  to within 0.05: about 22 trials a case; new cases: about 132 of 10 trials

case                   trial 0-9   passed  95 % interval
charged-twice          ++++++++++   10/10   0.72 to 1.00
stuck-tracking         ++++++++++   10/10   0.72 to 1.00
password-changed       ++-++-+-++    7/10   0.40 to 0.89  flaky
product-advice         --+-----+-    2/10   0.06 to 0.51  flaky
refund-missing         ++++++++++   10/10   0.72 to 1.00
charged-after-closing  ++++++++++   10/10   0.72 to 1.00
blank-message          ++++++++++   10/10              -  no model call
missing-body           ++++++++++   10/10              -  no model call
late-order             +++-+++++-    8/10   0.49 to 0.94  flaky
+ passed  - failed

k trials                 1      2      3      5     10
at least one passes  0.856  0.921  0.947  0.975  1.000
all pass             0.856  0.790  0.751  0.701  0.667

failed 13: triage-outcome 11, failure-criteria 2
latency: median 0.50 s, p90 0.50 s (n 70)
time: 45.00 s in all, 14% on trials that did not pass, 0.58 s a passed trial""")

    def test_a_stopped_run(self):
        self.assertEqual(self.lines(run_record({"a": "++-+", "b": "++!."})), """\
small
2 cases x 4 trials: 5 passed, 1 failed, 1 incomplete, 1 not run

2 cases: 0 always, 2 sometimes, 0 never passed
1 trial not run, so no curve and no interval of the whole; to resume, give the
  bench.py command of the log again

the 3 complete rounds alone, 6 trials:
k trials                 1      2      3
at least one passes  0.667  1.000  1.000
all pass             0.667  0.333  0.000

case  trial 0-3  passed  95 % interval
a     ++-+          3/4   0.30 to 0.95  flaky
b     ++!.          2/3   0.21 to 0.94  unsteady
+ passed  - failed  ! incomplete  . not run

failed 1: triage-outcome 1
incomplete 1: TimeoutError 1
latency: median 0.50 s, p90 0.50 s (n 6)
time: 3.50 s in all, 29% on trials that did not pass, 0.70 s a passed trial""")

    def test_incomplete_trials_show_the_bound(self):
        self.assertIn("\n  at most 0.667 had the 1 incomplete trial passed\n", self.lines(run_record({"a": "++!", "b": "-+-"})))

    def test_one_case_and_one_trial(self):
        self.assertIn("""\
passed 1 of 1: 1.000                  95 % interval
  this case, new trials               none: one trial a case
  new cases like it                   none: one case
""", self.lines(run_record({"a": "+"})))

    def test_tokens_and_load_where_the_trials_tell_them(self):
        tokens = {"prompt_eval_count": 100, "eval_count": 20, "eval_duration_s": 0.25, "load_duration_s": 0.1}
        self.assertTrue(self.lines(run_record({"a": "++++"}, metadata=tokens), prices=(1.0, 2.0)).endswith("""
model time, load apart: median 0.40 s, p90 0.40 s (n 4)
load: median 0.10 s, 0.40 s in all (n 4)
tokens in: 400, median 100 (n 4)
tokens out: 80, median 20 (n 4), median 80 a second
time: 2.00 s in all, 0% on trials that did not pass, 0.50 s a passed trial
money: 0.00056 in all, 0.00014 a passed trial, at 1 in and 2 out a million
  tokens"""))

    def test_a_sum_of_money_says_of_which_calls_it_is(self):
        record = run_record({"a": "++++"}, metadata={"prompt_eval_count": 100, "eval_count": 20})
        del record["results"][3]["metadata"]["eval_count"]      # as of a trial that timed out
        self.assertIn("\nmoney: 0.00046 for the 3 of 4 model calls that tell their tokens, 0.000115 a\n", self.lines(record, prices=(1.0, 1.0)))

    def test_prices_without_tokens_give_no_sum(self):
        self.assertIn("money: unknown, since the trials do not tell their tokens", self.lines(run_record({"a": "+"}), prices=(1.0, 0.0)))

    def test_what_a_reader_must_know_is_noted(self):
        record = run_record({"a": "++"}, metadata={"temperature": 0, "workers": 4}, provenance={"run_again": 13})
        record["results"][0]["metadata"]["server_version"] = "0.33.0"
        record["results"][1]["metadata"]["server_version"] = "0.34.1"
        self.assertTrue(self.lines(record).endswith("""
note: the trials differ in server version: 0.33.0 (1 trial), 0.34.1 (1 trial)
note: 2 model calls ran beside others (4 workers): a server that batches them
  may answer otherwise than alone
note: the temperature is 0: the seed changes nothing, so the trials of a case
  are one trial
note: 13 trials were run again: there was no reply the first time"""))

    def test_refusals_beside_other_trials_are_no_parallel_calls(self):
        self.assertTrue(self.lines(run_record({"a": "++"}, metadata={"workers": 4})).endswith("\nnote: the trials ran with 4 workers"))

    def test_trials_left_out_are_not_said_to_have_run_again(self):
        record = run_record({"a": "+."}, provenance={"run_again": 1})
        self.assertTrue(self.lines(record).endswith("\nnote: 1 trial was left out to be run again: there was no reply the first time"))

    def test_a_missing_interval_tells_its_reason(self):
        a, b = run_record({"a": "+-+-"}), run_record({"a": "++--"})
        lines = report.format_comparison(report.build_report([a, b])["comparisons"][0], PLAIN)
        self.assertIn("  new cases like these                none: one case  p = 1", lines)

    def test_a_printed_rate_is_rounded_once(self):
        text = self.lines(run_record({**dict.fromkeys("abcd", "+++"), "e": "++-", **dict.fromkeys("fghi", "---")}))
        self.assertIn("passed 14 of 27: 0.519 ", text)
        self.assertIn("at least one passes  0.519", text)

    def test_a_terminal_with_fewer_lines_ends_with_the_headline(self):
        records = [run_record({"a": "++", "b": "+-"}, name) for name in ("one", "two")]
        made, args = report.build_report(records), SimpleNamespace(failures=False, runs=["one.json", "two.json"], firsts=["one.json", "two.json"], out=[], regrade=False, plan=None)
        term = bench.Terminal(80, False, bench.ASCII_GLYPHS)
        with mock.patch.object(report, "next_command", lambda args: "next: this"):
            whole = report.format_report(made, records, {}, args, term)
            for height, again in ((len(whole) + 1, 0), (len(whole), 1)):
                lines = report.format_report(made, records, {}, args, dataclasses.replace(term, height=height))
                self.assertEqual(lines[:len(whole) - 2], whole[:-2])
                self.assertEqual((lines.count(whole[0]), lines[-2:]), (1 + again, ["", "next: this"]))
            made, args.runs = report.build_report(records[:1]), ["one.json"]
            lines = report.format_report(made, records, {}, args, dataclasses.replace(term, height=9))
            self.assertEqual(lines.count("2 cases: 1 always, 1 sometimes, 0 never passed"), 2)

    def test_an_empty_reply_is_called_so(self):
        record = run_record({"a": "!"}, metadata={"reply": ""})
        self.assertEqual(report.reply_of(record["results"][0]), "(empty reply)")

    def test_the_title_says_what_was_measured_and_on_what(self):
        record = run_record({"a": "+"}, "qwen:0.8b", metadata={"server_version": "0.33.0"}, provenance={"environment": {
            "hardware": "laptop", "server": {"quantization_level": "Q8_0", "context_length": 4096, "gpu_percent": 100}}})
        record["manifest"]["system"].update(model="qwen:0.8b@de63045f2975", options={"temperature": 1.0})
        self.assertTrue(self.lines(record).startswith("qwen:0.8b@de63045f2975  Q8_0  ctx 4096  temp 1  server 0.33.0  GPU 100%  laptop\n"))

    def test_no_line_is_wider_than_the_terminal(self):
        long = {"case-" + "x" * 100: "+-" * 60, "y": "!." * 60}
        a, b = run_record(long, "system-" + "z" * 100, provenance={"run_again": 1}), run_record({name: "+" * 120 for name in long}, "b" * 90)
        for width in (80, 200):
            term = bench.Terminal(width, False, bench.VERDICT_GLYPHS)
            made = report.build_report([b, b])
            lines = (report.format_system(report.build_report([a])["systems"][0], a, term) + report.format_system(made["systems"][0], b, term)
                     + report.format_comparison(made["comparisons"][0], term))
            self.assertLessEqual(max(map(bench.columns, lines)), width)

    def test_a_curve_of_many_trials_keeps_its_ends(self):
        lines = report.format_curve(report.curve(5000, [2500]), PLAIN)
        self.assertEqual(lines[0], "k trials                 1      2      3      5     10     20     50   5000")

    def test_folding_breaks_at_spaces_and_indents(self):
        term = bench.Terminal(20, False, bench.VERDICT_GLYPHS)
        self.assertEqual(bench.fold(["  one two three four five six"], term), ["  one two three four", "    five six"])
        self.assertEqual(bench.fold(["x" * 45], term), ["x" * 20, "  " + "x" * 18, "  " + "x" * 7])
        self.assertEqual(bench.fold(["one two three four five six seven eight"], term, most=1), ["one two three four …"])
        self.assertEqual(bench.fold(["界" * 15], term), ["界" * 10, "  " + "界" * 5])

    def test_model_text_cannot_reach_the_terminal(self):
        bad = "\x1b[31m\u202e\x00\ud800"
        record = run_record({bad: "+-"}, bad, metadata={"server_version": bad}, provenance={"environment": {"hardware": bad}})
        record["results"][1]["check"] = record["results"][1]["reason"] = bad
        made = report.build_report([record, record])
        text = "\n".join([*report.format_system(made["systems"][0], record, PLAIN), *report.format_comparison(made["comparisons"][0], PLAIN)])
        self.assertEqual(text, "".join(harness.printable(line) + "\n" for line in text.split("\n"))[:-1])
        self.assertEqual(text, text.encode("ascii").decode())

    def test_a_difference_on_these_cases_that_is_not_shown_for_new_ones(self):
        self.assertEqual(self.comparison(GEMMA, QWEN), """\
new against old, trials paired by number
what differs:
  name: "new" and "old"
passed 90 and 77 of 90: +0.144        95 % interval
  these cases, new trials             +0.09 to +0.20  p = 0.00391
  new cases like these                -0.06 to +0.35  p = 0.25
new is better by 14.4 points on these 9 cases (p = 0.00391); not shown for new
  cases (3 cases differ, and fewer than 6 never show a difference)
trials that only one of them passed: new 13, old 0
  passed more often by new: product-advice 10 to 2, password-changed 10 to 7,
    late-order 10 to 8
cases in which every trial passes for only one of them: new 3, old 0 (p = 0.25,
  McNemar)
  only new: password-changed, product-advice, late-order""")

    def test_of_many_cases_the_first_are_named(self):
        lines = self.comparison({f"case-{number:02}": "+" for number in range(30)}, {f"case-{number:02}": "-" for number in range(30)})
        self.assertIn("case-19 1 to 0, and 10 more\n", lines)
        self.assertTrue(lines.endswith("case-19, and 10 more"), lines)

    def test_a_difference_that_new_cases_would_show_too(self):
        self.assertIn("old is better by 100.0 points on these 6 cases (p = 0.0312), and on new cases\n  like these (p = 0.0312)",
                      self.comparison(dict.fromkeys("abcdef", "------"), dict.fromkeys("abcdef", "++++++")))

    def test_too_few_trials_to_show_anything(self):
        self.assertIn("\nold passed 100.0 points more: no difference shown (5 trials differ, and fewer\n  than 6 never show a difference)\n",
                      self.comparison({"a": "-----"}, {"a": "+++++"}))

    def test_enough_trials_and_no_difference(self):
        self.assertIn("\nnew passed 14.3 points more: no difference shown (p = 1)\n", self.comparison({"a": "++++---"}, {"a": "----+++"}))

    def test_equal_totals_with_flips_in_both_directions(self):
        self.assertIn("\nequal totals, but not of the same trials: no difference shown (p = 1)\n"
                      "trials that only one of them passed: new 4, old 4\n", self.comparison({"a": "++++----"}, {"a": "----++++"}))

    def test_the_same_run_twice(self):
        self.assertIn("\nno difference: every trial came out the same\n", self.comparison({"a": "+-"}, {"a": "+-"}))

    def test_a_comparison_that_cannot_be_made_says_why(self):
        self.assertEqual(self.comparison({"a": "+-"}, {"a": "+."}), "new against old: no comparison, 1 trial of old not run")

    def glance(self, width, *names):
        grids = ({"a": "++-", "b": "+--", "no": "+++"}, {"a": "+++", "b": "--!", "no": "+++"}, {"a": "+++", "b": "+++", "no": "+++"})
        tokens = {"eval_count": 20, "eval_duration_s": 0.25}
        made = report.build_report([run_record(grid, name, ("no",), tokens) for grid, name in zip(grids, names)])
        term = bench.Terminal(width, False, bench.ASCII_GLYPHS)
        return "\n".join([*report.format_glance(made, term), "", *report.format_across(made, term)])

    def test_several_systems_at_a_glance(self):
        self.assertEqual(self.glance(120, "terse", "kind", "long"), """\
system    rate    new trials     new cases  a/s/n  pass^3  inc.  median  tok/s    diff  p (Holm)
1 terse  0.500  0.06 to 0.94  0.00 to 1.00  0/2/0   0.000     0  0.50 s     80
2 kind   0.500  0.19 to 0.81  0.01 to 0.99  1/0/1   0.500     1  0.50 s     80  +0.000         1
3 long   1.000  0.44 to 1.00  0.07 to 1.00  2/0/0   1.000     0  0.50 s     80  +0.500         1
rate, 95 % intervals, a/s/n (cases that passed always, sometimes, never) of the 2 cases that need a model call;
  difference to terse

case      1      2      3
b       1/3    0/3    3/3
a       2/3    3/3    3/3
no      3/3    3/3    3/3""")

    def test_a_narrow_terminal_keeps_the_columns_that_matter(self):
        lines = self.glance(80, "x" * 40, "y" * 40, "z" * 40).split("\n")
        self.assertEqual(lines[0], "system                       rate    new trials  a/s/n  pass^3    diff  p (Holm)")
        self.assertEqual(lines[2], "2 yyyyyyyyyyyyyyyyyyyyyyy~  0.500  0.19 to 0.81  1/0/1   0.500  +0.000         1")
        five = report.build_report([run_record({"a": "+" * 10, "b": "+-" * 5}, f"system-{number}-of-a-long-name",
                                               metadata={"eval_count": 20, "eval_duration_s": 0.25}) for number in range(5)])
        lines = report.format_glance(five, bench.Terminal(100, False, bench.ASCII_GLYPHS))
        self.assertTrue(all(head in lines[0] for head in ("rate", "a/s/n", "pass^10", "median", "tok/s", "diff", "p (Holm)")), lines[0])
        self.assertLessEqual(max(map(len, lines)), 100)

    def test_cells_are_shaded_where_there_is_colour(self):
        made = report.build_report([run_record({"a": "++", "b": "+-"}, "one"), run_record({"a": "--", "b": "+-"}, "two")])
        lines = report.format_across(made, bench.Terminal(80, True, bench.VERDICT_GLYPHS))
        self.assertEqual(lines[1], "a     \x1b[30;48;5;114m  2/2\x1b[0m  \x1b[30;48;5;174m  0/2\x1b[0m")

    def test_of_many_cases_and_systems_what_separates_is_shown(self):
        grid = {f"case-{number}": "+" for number in range(50)}
        made = report.build_report([run_record({**grid, "case-49": "+" if number else "-"}, str(number)) for number in range(20)])
        lines = report.format_across(made, bench.Terminal(80, False, bench.ASCII_GLYPHS))
        self.assertEqual((len(lines), lines[1][:18]), (43, "case-49    0/1"[:18] + lines[1][14:18]))
        self.assertEqual(lines[-2:], ["not shown: 10 cases that separate the systems less", "not shown: 10 systems, for which the terminal is too narrow"])

    def test_systems_of_different_length_are_said_to_be(self):
        made = report.build_report([run_record({"a": "++"}, "one"), run_record({"a": "+++"}, "two")])
        self.assertEqual(report.format_glance(made, PLAIN)[-1], "the systems have 2 and 3 trials a case: a difference is that of the trials that\n  both have".split("\n")[-1])
        self.assertIn("pass^2", report.format_glance(made, PLAIN)[0])


class OnTheShippedCases(InFolder):
    """Reports of a log that bench.py wrote with the shipped cases."""

    class Mostly:
        """A system that is right but for some trials of two cases."""
        name, version, mode, model, prompt, tools = "mostly", "1", "live", "m", "", []

        def respond(self, case, trial):
            if "expect_rejection" in case:
                raise Rejection(case["expect_rejection"])
            if case["id"] == "late-order" and trial == 2:
                error = json.JSONDecodeError("Expecting value", "Sure!", 0)
                error.metadata = {"seed": 1002, "reply": "Sure!\n\x1b[31m"}
                raise error
            output = {"category": case["expect"]["category"], "needs_human": case["expect"].get("needs_human", True)}
            if case["id"] == "password-changed" and trial != 1:
                output["needs_human"] = False
            return Answer(output, {"seed": 1000 + trial})

    def setUp(self):
        super().setUp()
        self.cases = harness.load_cases(CASE_FILE, triage_task)
        bench.run_bench(self.Mostly(), self.cases, ["development"], 3, self.log, task=triage_task)

    def run_record(self):
        path = self.folder / "run.json"
        harness.write(path, harness.replay(bench.to_recording(self.log, self.cases), triage_task, self.cases))
        return path

    def test_a_log_and_its_run_record_give_the_same_bytes(self):
        one, two = self.folder / "one.json", self.folder / "two.json"
        first, second = report_on(self.log, "--out", one), report_on(self.run_record(), "--out", two)
        self.assertEqual((first.status, second.status, first.err + second.err), (0, 0, ""))
        made = [harness.read_json(path) for path in (one, two)]
        self.assertEqual([report.pop("sources") for report in made], [[{"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}]
                                                                      for path in (self.log, self.folder / "run.json")])
        self.assertEqual(*map(json.dumps, made))
        self.assertTrue(first.out.endswith(f"\nwrote {one}\nnext: {harness.PYTHON} report.py {self.log} --failures\n"))

    def read_in_parts(self, parts=3):
        """The report of the log, read by that many processes, and by one; how often a process was asked for."""
        made, asked = [], []
        for size in (self.log.stat().st_size // parts, 1 << 40):
            with (mock.patch.object(bench, "PART_BYTES", size), mock.patch.object(os, "sched_getaffinity", lambda pid: range(parts)),
                  mock.patch.object(bench, "Aside", side_effect=lambda *words, kind=bench.Aside: asked.append(1) or kind(*words))):
                made.append(report_on(self.log, "--out", self.folder / "made.json", "--failures"))
            if made[-1].status == 0:
                made[-1] = (made[-1].out, (self.folder / "made.json").read_bytes())
        return made, len(asked)

    @unittest.skipUnless(sys.platform == "linux", "a log is read by one process here")
    def test_several_processes_read_a_big_log_to_the_same_bytes(self):
        made, asked = self.read_in_parts()
        self.assertEqual((made[0], asked), (made[1], 2))
        lines = self.log.read_bytes().splitlines(keepends=True)
        for name, data in {"stopped": b"".join(lines[:20]), "torn": b"".join(lines)[:-9], "other order": b"".join([lines[0], *lines[:0:-1]]),
                           "one row": b"".join(lines[:2]), "no newline": b"".join(lines)[:-1], "blank end": b"".join(lines) + b"\n\0 \n"}.items():
            self.log.write_bytes(data)
            made, _ = self.read_in_parts()
            self.assertEqual(made[0], made[1], name)
            self.assertIsInstance(made[0], tuple, name)

    @unittest.skipUnless(sys.platform == "linux", "a log is read by one process here")
    def test_several_processes_refuse_what_one_refuses_with_the_line(self):
        lines = self.log.read_bytes().splitlines(keepends=True)
        for place, line, told in ((25, lines[3], "line 26: trial 0 of case \"password-changed\" is logged already in line 4"),
                                  (20, b"{}\n", "line 21: it is not the row of a trial"), (14, b"\n", "line 15: not JSON"),
                                  (27, lines[27].replace(b'"workers"', b'"eval_count": "x", "workers"'), "line 28: metadata.eval_count is \"x\"")):
            self.log.write_bytes(b"".join([*lines[:place], line, *lines[place + 1:]]))
            made, asked = self.read_in_parts()
            self.assertEqual((made[0], made[0].status, asked), (made[1], 1, 2))
            self.assertIn(told, made[0].err)

    @unittest.skipUnless(sys.platform == "linux", "a log is read by one process here")
    def test_a_process_that_cannot_be_started_or_is_lost_is_done_without(self):
        def lost(*words):
            os._exit(1)
        whole = self.read_in_parts()[0][1]
        with mock.patch.object(bench, "answer", lost):
            made, asked = self.read_in_parts()
        self.assertEqual((made[0], asked), (whole, 2))
        with mock.patch("multiprocessing.context.ForkContext.Process", side_effect=OSError(11, "no more processes")):
            made, asked = self.read_in_parts()
        self.assertEqual((made[0], asked), (whole, 1))

    def test_a_long_reason_is_told_in_short_but_shown_whole(self):
        text = "the shop " * 100
        bench.run_bench(Scripted(lambda case, trial: text), case_set("one"), ["development"], 2, self.log.with_name("long.jsonl"), task=triage_task)
        record = bench.graded_logs([self.log.with_name("long.jsonl")], triage_task, case_set("one"), False)
        (_, rows), = harness.case_rows(record)
        self.assertEqual([row["reason"] for row in rows], [f'the output is "{text}", not an object with category and needs_human'] * 2)
        self.assertEqual(report.verdict_line("one", record), f'one [0/2 trials] trial 0: output-fields: {rows[0]["reason"][:200]}…')

    def test_a_log_that_changes_while_it_is_read_is_refused(self):
        record = bench.graded_logs([self.log], triage_task, self.cases, False)
        lines = self.log.read_bytes().splitlines(keepends=True)
        for changed in (b"".join(lines[:9]), b"".join([lines[0], *lines[:0:-1]]), b"".join(lines).replace(b"{", b"[")):
            self.log.write_bytes(changed)
            self.assert_refused(f"{self.log}: the log was changed while it was read: give the command again", list, harness.case_rows(record))

    def test_the_bytes_do_not_depend_on_hash_seed_or_locale(self):
        path, found = self.run_record(), set()
        for seed, locale, encoding in (("0", "C", "ascii"), ("1", "C.UTF-8", "utf-8")):
            out = self.folder / f"{seed}.json"
            ended = script("report.py", path, self.log, "--out", out, env={"PYTHONHASHSEED": seed, "LC_ALL": locale, "PYTHONIOENCODING": encoding})
            self.assertEqual((ended.returncode, ended.stderr), (0, ""))
            found.add(out.read_bytes())
        self.assertEqual(len(found), 1)

    def test_failures_group_equal_replies(self):
        self.assertEqual(report_on(self.log, "--failures").out, """\
mostly  model m

password-changed  1/3  wants category account; fails on needs_human false
  2x  {"category": "account", "needs_human": false}
      failure-criteria: needs_human is false: somebody else may hold the
        account, so a person has to look at it
      trials 0 2   seeds 1000 1002
input: I got a mail that my password was changed this morning. I was asleep and
  I did not change anything. Now I cannot log in any more.

late-order  2/3  wants category delivery, needs_human false
  1x  Sure!\\n\\x1b[31m
      JSONDecodeError: Expecting value: line 1 column 1 (char 0)
      trial 2   seed 1002
input: My order was promised for last Friday and I need the rucksack on Thursday
  for a trip. When will it be here? If it cannot make it, I would rather cancel.
""")

    def test_failures_of_a_case_without_any(self):
        self.assertEqual(report_on(self.log, "--failures", "--case", "blank-message").out, """\
mostly  model m

blank-message  3/3  must be refused: message is blank
  no failures
input:    \\n
""")

    def test_an_unknown_case_gets_the_nearest_name(self):
        ended = report_on(self.log, "--failures", "--case", "late-orders")
        self.assertEqual((ended.status, ended.err), (1, 'error: --case late-orders: there is no such case; did you mean "late-order"?\n'))

    def test_failures_need_the_right_case_file(self):
        other = self.folder / "cases.json"
        document = harness.read_json(CASE_FILE)
        harness.write(other, {**document, "name": "other"})
        ended = report_on(self.run_record(), "--failures", "--cases", other)
        self.assertEqual(ended.status, 1)
        self.assertRegex(ended.err, r"\Aerror: .*cases.json is not the case set of .*--cases\n\Z")

    def test_a_log_graded_with_other_checks_is_refused_unless_on_purpose(self):
        changed = self.log.read_text().replace(harness.task_identity(triage_task)["sha256"], "0" * 64)
        self.log.write_text(changed)
        self.assertIn("--regrade", report_on(self.log).err)
        self.assertEqual(report_on(self.log, "--regrade").status, 0)

    @posix_shell
    def test_a_closed_pipe_leaves_no_traceback(self):
        ended = subprocess.run(f"{sys.executable} {HERE / 'report.py'} {self.log} | head -1", shell=True, capture_output=True, timeout=60)
        self.assertEqual((ended.stdout, ended.stderr), (b"mostly  model m\n", b""))


class OutputsThatFail(InFolder):
    """A gate keeps its exit status, and a run its trials, whatever becomes of what is printed."""

    def setUp(self):
        super().setUp()
        shipped = harness.load_cases(CASE_FILE, triage_task)
        bench.run_bench(harness.load_system("model_triage:bayes", shipped), shipped, ["development"], 2, self.log, task=triage_task)
        self.recording, self.taken = self.folder / "recording.json", self.folder / "taken.json"
        harness.write(self.recording, bench.to_recording(self.log))
        self.taken.mkdir()
        self.unmet, self.met = ("report.py", self.log, "--require", "all"), ("report.py", self.log, "--min", "pass@1=0.1")
        self.bench, self.grade = ("bench.py", "--log", self.log, "--trials", 2), ("harness.py", "run", "--recording", self.recording, "--out")

    def ends(self, table, **streams):
        """[(exit status, stderr)] of commands that run at once, each with these streams."""
        running = [subprocess.Popen(**started(*words), stdin=subprocess.DEVNULL, text=True, cwd=self.folder,
                                    **{"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, **streams}) for words in table]
        errors = [process.communicate(timeout=60)[1] for process in running]
        return [(process.returncode, error) for process, error in zip(running, errors)]

    def test_a_reader_that_has_left_changes_no_status(self):
        reader, writer = os.pipe()
        os.close(reader)
        self.addCleanup(os.close, writer)
        table = (self.unmet, self.met, self.bench, (*self.grade, self.folder / "run.json"), (*self.grade, self.taken), (*self.unmet, "--out", self.taken))
        found = self.ends(table, stdout=writer)
        self.assertEqual(found[:4], [(1, ""), (0, ""), (0, ""), (0, "")])
        for status, error in found[4:]:
            self.assertRegex(f"{status} {error}", f"\\A1 error: {re.escape(str(self.taken))}: cannot be written: .*\n\\Z")
        self.assertTrue((self.folder / "run.json").exists())
        self.assertEqual(self.ends([self.unmet], stderr=writer), [(1, None)])

    @unittest.skipUnless(os.path.exists("/dev/full"), "this system has no /dev/full")
    def test_a_full_disk_under_stdout_is_one_line_and_never_status_0(self):
        with open("/dev/full", "w") as full:
            found = self.ends((self.unmet, self.met, self.bench, (*self.grade, self.folder / "run.json")), stdout=full)
            self.assertEqual(self.ends([self.unmet, self.bench], stderr=full), [(1, None), (0, None)])
        self.assertEqual(found, [(1, f"error: the result cannot be printed: {os.strerror(errno.ENOSPC)}\n")] * 4)
        self.assertTrue((self.folder / "run.json").exists())

    def test_a_missing_stdout_changes_no_status(self):
        for words, status in ((self.unmet, 1), (self.met, 0), (self.bench, 0)):
            module = {"report.py": report, "bench.py": bench}[words[0]]
            with mock.patch.object(sys, "stdout", None), mock.patch.object(sys, "argv", ["x"]):
                self.assertEqual(module.main([str(word) for word in words[1:]]), status)


class TheReportCommand(InFolder):
    def refused(self, status, *words):
        ended = report_on(*words)
        self.assertEqual((ended.status, ended.out, ended.err.count("\n")), (status, "", 1), ended.err)
        return ended.err.replace(f"{self.folder}{os.sep}", "")

    def saved(self, value="", name="run.json"):
        path = self.folder / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    def test_wrong_values_are_refused_before_any_work(self):
        for words, error in (
                (("--min", "pass@0=1"), "error: argument --min: 'pass@0=1' is not like pass@1=0.8 or pass^3=0.7: K is from 1 up, the share from 0 to 1\n"),
                (("--min", "pass@1=1.5"), "error: argument --min: 'pass@1=1.5' is not like pass@1=0.8 or pass^3=0.7: K is from 1 up, the share from 0 to 1\n"),
                (("--margin", "nan", "--no-worse-than", "x"), "error: argument --margin: 'nan' is not a share from 0 to 1\n"),
                (("--margin", "0.1"), "error: --margin needs --no-worse-than: the baseline that it is measured from\n"),
                (("--allow-incomplete", "-1"), "error: argument --allow-incomplete: '-1' is not a whole number from 0 up\n"),
                (("--allow-incomplete", "1.5"), "error: argument --allow-incomplete: '1.5' is not a whole number from 0 up\n"),
                (("--price-in", "inf"), "error: argument --price-in: 'inf' is not a price from 0 up\n"),
                (("--out", "report.txt"), f"error: argument --out: 'report.txt' does not end in one of {', '.join(report.FORMATS)}, the known formats\n"),
                (("--out", "nowhere/report.json"), "error: argument --out: the folder of 'nowhere/report.json' is not there: make it first\n"),
                (("--out", "missing.json"), "error: --out missing.json: that file is read, give another name\n"),
                (("--excel", "--out", "a.json"), "error: --excel needs --out with a name that ends in .csv\n"),
                (("--case", "a"), "error: --case needs --failures: it picks the case whose failures are shown\n"),
                (("--failure",), 'error: unrecognized arguments: --failure; did you mean "--failures"?\n')):
            with self.subTest(words=words):
                self.assertEqual(self.refused(2, "missing.json", *words), error)

    def test_files_that_cannot_be_reported(self):
        empty = {"responses": {}}
        self.enterContext(contextlib.chdir(self.folder))
        for path, error in ((self.folder / "none.json", "error: none.json: No such file or directory\n"),
                            (self.saved("{", "a.json"), "error: a.json: not JSON: line 1, column 2: it ends too early"),
                            (self.saved("", "b.jsonl"), "error: b.jsonl: the log holds no run yet: run bench.py first\n"),
                            (self.saved("hello", "c.txt"), "error: c.txt: not JSON"),
                            (self.saved({"report_version": "1"}, "d.json"), "error: d.json: neither a run record nor a log: manifest is missing\n"),
                            (self.saved(empty, "e.json"), "error: e.json: it is a recording: grade it with harness.py run, or give the log itself\n")):
            with self.subTest(path=path):
                self.assertTrue(self.refused(1, path).startswith(error))

    @unittest.skipUnless(hasattr(os, "mkfifo"), "a system without named pipes")
    def test_a_pipe_or_a_device_is_refused_at_once_since_a_log_is_read_twice(self):
        os.mkfifo(self.folder / "pipe")
        for path in (self.folder / "pipe", os.devnull):
            self.assertEqual(called(report, path), (
                1, "", f"error: {path}: this is a pipe or a device, which cannot be read twice: put it into a file first\n"))

    def test_a_folder_is_no_run(self):
        self.assertIn(IS_A_FOLDER, self.refused(1, self.folder))

    def test_two_systems_are_reported_and_compared(self):
        ended = report_on(self.saved(run_record({"a": "+-"}, "one")), self.saved(run_record({"a": "+-"}, "two"), "two.json"))
        self.assertEqual(ended.status, 0)
        self.assertEqual(re.findall(r"^(?:one|two).*$", ended.out, re.M), ["one", "two", "one against two, trials paired by number"])

    def test_colour_is_only_where_it_is_wanted(self):
        path = self.saved(run_record({"a": "+-"}))
        self.assertNotIn("\x1b", report_on(path).out)
        self.assertIn("\x1b[32m1 passed\x1b[0m", report_on(path, "--color", "always").out)

    def test_help_prints_the_manual(self):
        self.assertIn(report.__doc__.strip(), report_on("--help").out)

    def test_every_printed_estimate_is_in_the_json(self):
        path, out = self.saved(run_record(QWEN, "qwen", REFUSES)), self.folder / "out.json"
        text = report_on(path, "--out", out).out
        told = set()

        def numbers(value):
            if isinstance(value, (dict, list)):
                for part in value.values() if isinstance(value, dict) else value:
                    numbers(part)
            elif isinstance(value, (int, float)) and not isinstance(value, bool):
                told.update((f"{value:.2f}", f"{value:.3f}"))

        numbers(harness.read_json(out))
        self.assertEqual([number for number in re.findall(r"\d+\.\d+", text) if number not in told], [])


class Formats(InFolder):
    """What --out writes for other programs."""

    def written(self, name, *records, words=()):
        """The text of a report of run records, written by its command line in the format of a name."""
        paths = [self.write(f"{number}.json", json.dumps(record)) for number, record in enumerate(records)]
        ended = report_on(*paths, "--out", self.folder / name, *words)
        self.assertEqual(ended.err, "")
        return (self.folder / name).read_bytes().decode()

    def junit(self, *records, words=()):
        """{suite: {test: (element's tag, its message, its text)}} of a JUnit file, and each suite's own counts."""
        root = xml.etree.ElementTree.fromstring(self.written("tests.xml", *records, words=words))
        return {suite.get("name"): {test.get("name"): (test[0].tag, test[0].get("message"), test[0].text) for test in suite.iter("testcase")}
                for suite in root}, [[suite.get(key) for key in ("tests", "failures", "errors", "skipped", "time")] for suite in root]

    def test_a_case_is_a_test_of_junit(self):
        suites, counts = self.junit(run_record({"good": "+++", "flaky": "-+-", "broken": "+!+", "odd": "x!.", "part": "++."}))
        self.assertEqual(counts, [["5", "2", "1", "1", "6.500000"]])
        self.assertEqual(suites["small"], {
            "good": ("system-out", None, "[3/3 trials]\n"),
            "flaky": ("failure", '[1/3 trials] triage-outcome: category is other',
                      '2x  triage-outcome: category is other   trials 0 2\n'),
            "broken": ("error", "[2/3 trials] TimeoutError: no answer", "1x  TimeoutError: no answer   trials 1\n"),
            "odd": ("failure", "[0/3 trials] failure-criteria: needs_human is false",
                    "1x  failure-criteria: needs_human is false   trials 0\n1x  TimeoutError: no answer   trials 1\n1x  NotRun: planned, but not in the log   trials 2\n"),
            "part": ("skipped", None, "[2/3 trials]\n1x  NotRun: planned, but not in the log   trials 2\n")})

    def test_a_test_of_junit_ends_by_the_policy(self):
        for policy, ends in (("all", "system-out failure error skipped"), ("majority", "system-out system-out error skipped"),
                             ("any", "system-out system-out error skipped")):
            suites, _ = self.junit(run_record({"a": "+++", "b": "++-", "c": "!!!", "d": "..."}), words=("--require", policy))
            self.assertEqual(" ".join(test[0] for test in suites["small"].values()), ends, policy)

    def test_hostile_text_stays_text_in_junit(self):
        records = [HostileText().record("x+", "!+"), HostileText().record("++", "++")]
        made = report.build_report(records)
        text = "".join(report.junit_text(made, records, None))
        HostileText().assert_printable(text)
        one, two = xml.etree.ElementTree.fromstring(text)
        self.assertEqual((one.get("name"), two.get("name")), (f"{HARMLESS} (1)", f"{HARMLESS} (2)"))
        self.assertEqual(one.find("testcase/failure").get("message"), f"[1/2 trials] {HARMLESS}: {HARMLESS}")
        self.assertEqual(one.find("testcase/error").text, f"1x  {HARMLESS}   trials 0\n")

    def table(self, *records, words=()):
        """The rows of a CSV file, its head first."""
        return list(csv.reader(io.StringIO(self.written("trials.csv", *records, words=words), newline=""), strict=True))

    def test_a_trial_is_a_row_of_csv(self):
        told = {"seed": 1000, "prompt_eval_count": 12, "eval_count": 3, "reply": 'a "b",\r\nc'}
        one, two = run_record({"a": "+-"}, "one", metadata=told), run_record({"a": "!."}, "two")
        self.assertEqual(self.table(one, two), [
            ["system", "case", "class", "trial", "verdict", "check", "reason", "seed", "latency_s", "tokens_in", "tokens_out", "reply"],
            ["one", "a", "billing", "0", "pass", "", "", "1000", "0.5", "12", "3", 'a "b",\nc'],
            ["one", "a", "billing", "1", "fail", "triage-outcome", "category is other", "1000", "0.5", "12", "3", 'a "b",\nc'],
            ["two", "a", "billing", "0", "incomplete", "", "TimeoutError: no answer", "", "0.5", "", "", ""],
            ["two", "a", "billing", "1", "incomplete", "", "NotRun: planned, but not in the log", "", "", "", "", ""]])
        self.assertEqual(self.written("trials.csv", run_record({"a": "+"})).splitlines(keepends=True)[1],
                         'small,a,billing,0,pass,,,,0.5,,,"{""category"": ""billing""}"\r\n')

    def test_all_formats_of_several_logs_read_each_row_once_more(self):
        logs = [self.folder / f"{name}.jsonl" for name in ("one", "two")]
        for number, log in enumerate(logs):
            bench.run_bench(Scripted(name=log.stem), case_set("a", "b", "c", "d"), ["development"], 2 + number, log, task=triage_task)
        names = [self.folder / f"out.{end}" for end in ("html", "csv", "otlp.jsonl", "json", "xml", "md")]
        with mock.patch("bench.row_at", side_effect=bench.row_at) as read:
            ended = report_on(*logs, *(word for name in names for word in ("--out", name)))
        self.assertEqual((ended.status, read.call_count), (0, 4 * 2 + 4 * 3))
        self.assertEqual([row[:2] + row[3:4] for row in csv.reader(names[1].read_text().splitlines())][1:6],
                         [["one", "a", "0"], ["one", "a", "1"], ["two", "a", "0"], ["two", "a", "1"], ["two", "a", "2"]])

    def test_after_an_error_no_format_is_written(self):
        record = self.write("0.json", json.dumps(run_record({"a": "+"})))
        ended = report_on(record, *(word for end in ("csv", "otlp.jsonl", "md") for word in ("--out", self.folder / f"out.{end}")))
        self.assertIn("spans need times", ended.err)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["0.json"])

    def test_a_spreadsheet_gets_no_formula(self):
        for reply, cell in (("=1+1", "'=1+1"), ("@SUM(A1)", "'@SUM(A1)"), ("-2+3", "'-2+3"), ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
                            ("\t=1", "\\t=1"), (" =1", "' =1"), ("\n=1", "'\n=1"), ("＝1", "'＝1"), ("-5", "-5"), ("+4.5e3", "+4.5e3"),
                            ("a\ud800\x00b", r"a\ud800\x00b"), (["=1"], '["=1"]'), (True, "true")):
            rows = self.table(run_record({"=a": "+"}, "-n", metadata={"reply": reply}))
            self.assertEqual((rows[1][:2], rows[1][-1]), (["'-n", "'=a"], cell))

    def test_excel_gets_a_byte_order_mark_where_asked_for(self):
        plain, marked = (self.written("trials.csv", run_record({"a": "+"}), words=words) for words in ((), ("--excel",)))
        self.assertEqual((plain[:6], marked), ("system", "\ufeff" + plain))

    def test_a_report_in_markdown(self):
        text = self.written("summary.md", run_record({"a|b": "+-", "c": "++"}, "x|`y`"), words=("--require", "all"))
        self.assertEqual([line for line in text.split("\n") if line[:1] in tuple("#-")], [
            "# ` small `", "## `` x|`y` ``", "- ` ✗ --require all: NOT MET, every trial passes in 1 of 2 cases `",
            "- ` ✓ --allow-incomplete 0: met, 0 incomplete trials `"])
        self.assertIn("\n| `` x¦`y` `` | 0.750 | ", text)
        self.assertIn("  - ` a|b [1/2 trials] trial 1: triage-outcome: category is other `\n", text)
        self.assertEqual(text.count("\n```"), 2)
        self.assertIn("\na|b   ✓✗            1/2", text)
        old = self.write("old.json", json.dumps(run_record({"a|b": "--", "c": "++"}, "old")))
        self.assertIn("\n- ` ✓ --no-worse-than ", self.written(
            "gate.md", run_record({"a|b": "+-", "c": "++"}), words=("--no-worse-than", old)))

    def test_markdown_keeps_its_limit_and_tells_the_gates_first(self):
        grid = {f"{number} " + "ö`" * 40: "-" * 12 for number in range(45)}
        records = [run_record(grid, f"{'é' * 200}{number}") for number in range(9)]
        made = report.build_report(records)
        made["gates"] = [{"gate": "--require all", "met": False, "detail": "d", "cases": ["`" * 1000] * 300}]
        text = report.markdown_text(made, records, SimpleNamespace(firsts=[""] * 9))
        self.assertLess(len(text.encode()), 60_000)
        self.assertIn("- ` ✗ --require all: NOT MET, d `\n", text)
        self.assertIn("  - and 280 more cases\n", text)
        self.assertRegex(text, r"\nToo long for this page: \d+ parts\.\n$")

    def test_hostile_text_is_code_in_markdown(self):
        evil = "``` ````\n# @team <img src=x onerror=alert(1)> [a](javascript:b) | $`x`$\n~~~\n"
        record = run_record({evil: "+-!", "b": "+++"}, evil, case_set={"name": evil, "sha256": "1"}, metadata={"server_version": evil})
        text = self.written("summary.md", record, record, words=("--require", "all"))
        outside = re.sub(r"(?ms)^(`{3,})text\n.*?^\1\n", "", text)
        self.assertEqual(outside.count("text\n"), 0)
        outside = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", outside)
        self.assertEqual(re.findall("[`<@\\[$~]|team", outside), [])

    def test_a_workflow_of_github_hears_of_gates_not_met_and_of_nothing_else(self):
        evil = "::set-env name=A::b\n::error::100 %, c: d"
        ended = report_on(self.write("a.json", json.dumps(run_record({evil: "-"}, evil))), "--github", "--require", "all", "--min", "pass@1=0")
        start, *lines, end, error = ended.out.splitlines()
        self.assertRegex(start, "^::stop-commands::[0-9a-f]{32}$")
        self.assertEqual(end, f"::{start[17:]}::")
        self.assertEqual(error, "::error title=--require all::every trial passes in 0 of 1 case%0A::set-env name=A::b\\n::error::100 %25, c: d "
                                "[0/1 trials] trial 0: triage-outcome: category is other")
        self.assertEqual(report.annotations([{"gate": "a, b: 1%", "met": False, "detail": "c\r\n"}]), ["::error title=a%2C b%3A 1%25::c\\r\\n"])

    def spans(self, log):
        """The spans of a log as OTLP's JSON lines, each with its attributes as {key: value}."""
        ended = report_on(log, "--out", self.folder / "run.otlp.jsonl")
        self.assertEqual(ended.err, "")
        spans = [span for line in (self.folder / "run.otlp.jsonl").read_text().splitlines()
                 for part in json.loads(line)["resourceSpans"] for scope in part["scopeSpans"] for span in scope["spans"]]
        return [{**span, "attributes": {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}} for span in spans]

    def test_a_trial_is_a_span_under_that_of_its_run(self):
        *spans, run = self.spans(HERE / "recorded" / "smollm2-135m-instruct-q4_1-stopped.jsonl")
        self.assertEqual((len(spans), {span["traceId"] for span in spans}, {span["parentSpanId"] for span in spans}),
                         (33, {run["traceId"]}, {run["spanId"]}))
        self.assertEqual(len({span["spanId"] for span in (*spans, run)}), 34)
        self.assertRegex(run["traceId"] + run["spanId"], "^[0-9a-f]{48}$")
        self.assertNotIn("parentSpanId", run)
        self.assertEqual([min(span["startTimeUnixNano"] for span in spans), max(span["endTimeUnixNano"] for span in spans)],
                         [run["startTimeUnixNano"], run["endTimeUnixNano"]])
        self.assertEqual({key: run["attributes"][f"benchmark.{key}"] for key in ("trials", "pass", "fail", "not_run")},
                         {"trials": "10", "pass": "12", "fail": "21", "not_run": "57"})

    def test_a_span_has_the_names_of_the_conventions(self):
        log = HERE / "recorded" / "smollm2-135m-instruct-q4_1.jsonl"
        row, span = json.loads(log.read_text().splitlines()[1]), self.spans(log)[0]
        start = datetime.fromisoformat(row["started_at"]).timestamp() * 1000
        self.assertEqual((span["name"], span["kind"], span["startTimeUnixNano"], int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])),
                         ("chat smollm2-135m-instruct:q4_1", 3, f"{round(start)}000000", round(row["latency_s"] * 1e9)))
        self.assertEqual({key: value for key, value in span["attributes"].items() if key.startswith(("gen_ai", "test"))}, {
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "ollama", "gen_ai.request.model": "smollm2-135m-instruct:q4_1",
            "gen_ai.request.seed": "1000", "gen_ai.request.temperature": 1.0, "gen_ai.request.max_tokens": "64",
            "gen_ai.output.type": "json", "gen_ai.usage.input_tokens": str(row["metadata"]["prompt_eval_count"]),
            "gen_ai.usage.output_tokens": str(row["metadata"]["eval_count"]), "gen_ai.response.finish_reasons": {"values": [{"stringValue": "stop"}]},
            "test.suite.name": "inbox-triage", "test.case.name": "charged-twice", "test.case.result.status": "fail"})

    def test_errors_are_the_status_of_a_span_and_no_text_of_a_case_is_told(self):
        lines = (HERE / "recorded" / "bayes.jsonl").read_text().splitlines()
        row = json.loads(lines[1])
        del row["output"]
        lines[1] = json.dumps({**row, "error": {"types": ["TimeoutError"], "message": "no\ud800 answer"}, "metadata": {"seed": 10 ** 30, "reply": "SECRET"}})
        span, *rest = self.spans(self.write("log.jsonl", "\n".join(lines) + "\n"))
        self.assertEqual((span["status"], span["attributes"]["error.type"]), ({"code": 2, "message": r"TimeoutError: no\ud800 answer"}, "TimeoutError"))
        self.assertNotIn("test.case.result.status", span["attributes"])
        self.assertEqual([one for one in rest if "status" in one], [])
        self.assertEqual({one["name"] for one in rest}, {"chat bayes", "refuse bayes", "benchmark bayes"})
        self.assertNotRegex((self.folder / "run.otlp.jsonl").read_text(), "SECRET|charged me|needs_human")

    def test_spans_need_the_times_of_a_log(self):
        ended = report_on(self.write("run.json", json.dumps(run_record({"a": "+"}))), "--out", self.folder / "a.otlp.jsonl")
        self.assertEqual((ended.status, ended.out, ended.err), (1, "", "error: small: trial 0 of a has no started_at, and spans need "
                                                                "times: give the log itself, not a run record\n"))
        self.assertEqual([path.name for path in self.folder.iterdir()], ["run.json"])


# The page and the picture

HOSTILE = ('</style></script></title></svg><script>alert(1)</script><img src=x onerror=alert(1)>"\' onload="x" & ]]> -->'
           '\x1b[31m\x00\x85\ud800\udfff\u202e\u2066\u200f\ufeff\ufdd0\ufffe\uffff\U0001ffff\u2028\r\nשלום')
HARMLESS = ("</style></script></title></svg><script>alert(1)</script><img src=x onerror=alert(1)>\"' onload=\"x\" & ]]> -->"
            r"\x1b[31m\x00\x85\ud800\udfff\u202e\u2066\u200f\ufeff\ufdd0\ufffe\uffff\U0001ffff\u2028\r\nשלום")
PAGE_TAGS = set("html head meta title style body h1 h2 h3 h4 h5 p br b ul li bdi small span a div section article footer dl dt "
                "dd pre code table caption thead tbody tfoot tr th td figure figcaption svg desc text path circle details summary "
                "fieldset legend label input".split())


class Tree(html.parser.HTMLParser):
    """A page as [tag, {attribute: value}, children]; AssertionError where tags do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open = [["", {}, []]]
        self.feed(text)
        self.close()
        assert len(self.open) == 1, self.open[-1][0]

    def handle_starttag(self, tag, attributes):
        assert len(dict(attributes)) == len(attributes)
        element = [tag, dict(attributes), []]
        self.open[-1][2].append(element)
        if tag not in ("meta", "br", "input"):
            self.open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.open[-1][2].append([tag, dict(attributes), []])

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag, tag

    def handle_data(self, text):
        self.open[-1][2].append(text)


def elements(element, tag=None, kind=None):
    """The elements inside one, with that tag and class, in their order."""
    for child in element[2]:
        if not isinstance(child, str):
            if tag in (None, child[0]) and (kind is None or kind in child[1].get("class", "").split()):
                yield child
            yield from elements(child, tag, kind)


def words(element):
    """The text inside an element."""
    return "".join(child if isinstance(child, str) else words(child) for child in element[2]).replace("\xa0", " ")


def page_of(*records, **options):
    """(the report, its page as text, its page as a tree) of run records."""
    made = report.build_report(list(records), **options)
    text = report.html_page(made, list(records))
    return made, text, Tree(text).open[0]


def picture_of(record):
    """The picture of a run record, as text."""
    return report.svg_picture(report.build_report([record])["systems"][0], record)


def told(record):
    """A run record whose trials have seeds and latencies of their own, and a raw reply where the output is missing."""
    for place, row in enumerate(record["results"]):
        if not row["reason"] or not row["reason"].startswith("NotRun"):
            row["metadata"].update(seed=1000 + row["trial"], recorded_latency_s=0.2 + place / 100)
        if row["verdict"] == "incomplete":
            row["metadata"]["reply"] = f'{{"category":\n "bil{row["trial"] % 2}'
    return record


def grid_of(tree):
    """[(case, [(class, glyph, hint, id that opens)] of its trials, [count, interval, note])] of a page's first system."""
    table = next(table for table in elements(tree, "table", "grid") if table[1]["class"] == "grid")
    rows = []
    for row in elements(next(elements(table, "tbody")), "tr"):
        cells = [(cell[1]["class"].split()[1], words(cell), *(next(elements(cell, "a"))[1][key] for key in ("title", "href")))
                 for cell in elements(row, "td", "trial")]
        rows.append((words(next(elements(row, "th"))), cells, [words(cell) for cell in list(elements(row, "td"))[-3:]]))
    return rows


def pair_of(tree):
    """{case: [[system, its cells as a string, passed], …, difference]} of the first grid of two systems."""
    found = {}
    for body in elements(next(elements(tree, "table", "pair")), "tbody"):
        lines = []
        for row in elements(body, "tr"):
            label = [words(head) for head in elements(row, "th") if head[1]["scope"] == "row"]
            cells = "".join(words(cell) or " " for cell in elements(row, "td", "trial"))
            lines.append(label + [cells, words(next(elements(row, "td", "number")))])
        found[words(next(elements(body, "th")))] = lines + [words(next(cell for cell in elements(body, "td") if "rowspan" in cell[1]))]
    return found


def answers_of(tree):
    """{id: {"": verdict, "check": …, "reason": …, "output": …, "trials": {trial: "seed …, … s"}}} of a page."""
    found = {}
    for article in elements(tree, "article"):
        facts = dict(zip(map(words, elements(article, "dt")), map(words, elements(article, "dd"))))
        trials = (text.partition(" (") for text in (facts.pop("trials", "") or facts.pop("trial")).split("; "))
        found["#" + article[1]["id"]] = {"": words(next(elements(article, "h5"))), **facts,
                                         "trials": {int(trial): seen.rstrip(")") for trial, _, seen in trials}}
    return found


def table_of(tree, caption):
    """The rows of the table whose caption starts so, its heads first, as texts."""
    table = next(table for table in elements(tree, "table") if words(next(elements(table, "caption"))).startswith(caption))
    return [[words(cell) for cell in row[2] if not isinstance(cell, str)] for row in elements(table, "tr")]


def luminance(colour):
    """The relative luminance of "#rrggbb", as WCAG defines it."""
    parts = [int(colour[place:place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


MIXED = {"a": "++-x!!", "b": "!-----", "refused": "++++++", "c": "++++++"}
STOPPED = {"a": "++-x..", "b": "!-....", "c": "+++..."}


class ThePage(unittest.TestCase):
    def test_every_cell_opens_the_answer_of_its_trial(self):
        for grid in (MIXED, STOPPED):
            record = told(run_record(grid, refuses=("refused",)))
            _, _, tree = page_of(record)
            cells, answers = {name: cells for name, cells, _ in grid_of(tree)}, answers_of(tree)
            self.assertEqual(sum(map(len, cells.values())), len(record["results"]))
            for row in record["results"]:
                kind, glyph, hint, link = cells[row["case_id"]][row["trial"]]
                verdict = "not run" if (row["reason"] or "").startswith("NotRun:") else row["verdict"]
                answer, word = answers[link], bench.VERDICT_WORDS[verdict]
                name = row["check"] or (row["reason"] or "").partition(":")[0]
                with self.subTest(case=row["case_id"], trial=row["trial"]):
                    self.assertEqual((kind, glyph), (verdict.replace("not run", "absent"), bench.VERDICT_GLYPHS[verdict]))
                    self.assertEqual(hint, word if verdict in ("pass", "not run") else f"{word}: {name}")
                    self.assertTrue(answer[""].startswith(f"{glyph} {word}: "))
                    self.assertEqual((answer.get("check"), answer.get("reason")), (row["check"], row["reason"]))
                    latency = row["metadata"]["recorded_latency_s"]
                    self.assertEqual(answer["trials"][row["trial"]],
                                     "" if verdict == "not run" else f"seed {1000 + row['trial']}, {latency:.2f} s")
                    if row["output"] is not None:
                        self.assertEqual(json.loads(answer["output"]), row["output"])
                    elif "reply" in row["metadata"]:
                        self.assertEqual((answer["raw reply"], answer.get("output")), (row["metadata"]["reply"], None))

    def test_counts_intervals_and_notes_of_the_grid_are_those_of_the_report(self):
        made, _, tree = page_of(run_record(QWEN, refuses=REFUSES))
        for name, _, (count, interval, note) in grid_of(tree):
            case = made["systems"][0]["per_case"][name]
            self.assertEqual(count, f"{case['pass']}/10")
            self.assertEqual(interval, "" if name in REFUSES else report.span(case["interval"]))
            self.assertEqual(note, "no model call" if name in REFUSES else "flaky" if case["pass"] < 10 else "")
        foot = [words(cell) for cell in elements(next(elements(tree, "tfoot")), "td", "trial")]
        self.assertEqual(list(map(int, foot)), made["systems"][0]["passed_per_trial"])

    def test_equal_answers_of_a_case_stand_together(self):
        answers = answers_of(page_of(told(run_record(MIXED)))[2])
        self.assertEqual([(answer[""], list(answer["trials"])) for link, answer in answers.items() if link.startswith("#s0c1")],
                         [("✗ failed: 5 of 6 trials", [1, 2, 3, 4, 5]), ("! incomplete: 1 of 6 trials", [0])])

    def test_a_case_tells_its_input_and_what_is_wanted_where_the_log_knows_them(self):
        record = harness.compact(told(run_record({"a": "+-!", "b": "+++"})))
        self.assertNotIn("expectation", page_of(record)[1])
        record.asked = {"a": {**case("a", input="Where is\nmy <order>?"), "expect": {"category": "billing"},
                              "failure_criteria": [{"field": "category", "equals": "other", "why": "it is about money"}]},
                        "b": case("b", input=None)}
        asked, none = (next(elements(one, "dl")) for one in elements(page_of(record)[2], "section", "case"))
        self.assertEqual([words(fact) for fact in elements(asked, "dd")],
                         ["Where is\nmy <order>?", "wants category billing; fails on category other", "it is about money"])
        self.assertEqual(words(next(elements(none, "dd"))), "none")
        self.assertEqual([answer.get("compared") for link, answer in answers_of(page_of(record)[2]).items() if link.startswith("#s0c0")],
                         ["category other, wanted billing", None, "category billing, wanted billing"])

    def test_what_is_compared_is_told_in_the_task_s_own_words(self):
        record = harness.compact(run_record({"a": "+-!", "b": "+-!"}))
        rows = [dict(row, output=output) for row, output in zip(record.rows(0) + record.rows(1), (
            {"total": 1.8}, {"shop": "x"}, None, "so it is\nANSWER: b", "ANSWER: c", None))]
        record.rows = lambda number: rows[3 * number:3 * number + 3]
        schema = {"type": "object", "properties": {"total": {"type": "number"}}}
        for number, definition, case in (
                (0, {"name": "t", "schema": schema, "compare": {"total": {"within": 0.5}}}, {"expect": {"total": 2, "shop": {"contains": "y"}}}),
                (1, {"name": "t", "extract": "ANSWER: (.)", "compare": "text"}, {"expect": {"one_of": ["b", "d"]}})):
            record.task, record.asked = harness.DataTask(definition), {name: {"input": "x", **case} for name in "ab"}
            tree = page_of(record)[2]
            expectation = list(elements(list(elements(tree, "section", "case"))[number], "dd"))[1]
            told = [answer.get("compared") for link, answer in answers_of(tree).items() if link.startswith(f"#s0c{number}")]
            self.assertEqual((words(expectation), told), (
                ('wants total 2 within 0.5, shop to contain "y"', [
                    'total (missing), wanted 2 within 0.5; shop x, wanted to contain "y"', None,
                    'total 1.8, wanted 2 within 0.5; shop (missing), wanted to contain "y"']),
                ('wants one of "b" or "d"', ['c, wanted one of "b" or "d"', None, 'b, wanted one of "b" or "d"']))[number])

    def test_a_raw_reply_is_shown_where_it_says_more_than_the_output_and_thinking_opens(self):
        record = run_record({"a": "++-"})
        for row, reply, thought in zip(record["results"], ('{"category": "billing"}', '{"category":  "billing"}', "```{}"), ("<i>hm</i>", "", None)):
            row["metadata"].update(reply=reply, thinking=thought)
        _, _, tree = page_of(record)
        self.assertEqual([answer.get("raw reply") for answer in answers_of(tree).values()], ["```{}", None])
        self.assertEqual([words(opened) for opened in elements(tree, "details")], ["thinking of trial 0<i>hm</i>"])

    def test_many_trials_are_a_strip_beside_which_numbers_stand(self):
        _, text, tree = page_of(told(run_record({"a": "+-!." * 50, "b": "+" * 200}, "one")), told(run_record({"a": "-+!." * 50, "b": "+" * 200}, "two")))
        self.assertEqual(list(elements(tree, "td", "trial")), [])
        strips = [next(elements(cell, "svg"))[1] for cell in elements(tree, "td", "trials")]
        self.assertEqual([strip["aria-hidden"] for strip in strips], ["true"] * 4)
        self.assertEqual([numbers[0] for *_, numbers in grid_of(tree)], ["50/150", "200/200"])
        trials = [words(list(elements(one, "dd"))[-1]) for one in elements(tree, "article", "absent")]
        self.assertEqual(trials[0].split("; ")[:3], ["3", "7", "11"])
        self.assertIn('<th scope="col" class="trials"><span>trial 0</span> <span>199</span></th>', text)

    def test_of_30_cases_those_that_always_passed_start_hidden(self):
        grid = {f"case {place}": "+-" if place == 3 else "--" if place == 5 else "++" for place in range(30)}
        for cases, boxes in ((29, []), (30, [("always", False), ("sometimes", True), ("never", True)])):
            text, tree = page_of(run_record(dict(list(grid.items())[:cases])))[1:]
            self.assertEqual([(box[1]["class"].partition("-")[2], "checked" in box[1]) for box in elements(tree, "input")], boxes)
        self.assertEqual([words(label) for label in elements(tree, "label")], [" passed always (28)", " passed sometimes (1)", " passed never (1)"])
        rows = [row[1]["class"] for row in elements(next(elements(next(elements(tree, "table", "grid")), "tbody")), "tr")]
        self.assertEqual([rows.count(kind) for kind in ("always", "sometimes", "never")], [28, 1, 1])
        for kind in ("always", "sometimes", "never", "differ", "equal"):
            self.assertIn(f"section:has(> .filter .show-{kind}:not(:checked)) > .grid .{kind}", text)
        self.assertEqual(list(elements(page_of(run_record(dict.fromkeys(grid, "++")))[2], "input")), [])
        two = page_of(run_record(grid), run_record({**grid, "case 7": "+-"}))[2]
        self.assertEqual([words(label) for label in elements(two, "label")][:2], [" with a flip (1)", " without (29)"])

    def test_no_heading_skips_a_level(self):
        _, _, tree = page_of(told(run_record(MIXED, "one")), run_record(MIXED, "two"))
        levels = [int(element[0][1]) for element in elements(tree) if re.fullmatch("h[1-6]", element[0])]
        self.assertEqual([(a, b) for a, b in zip(levels, levels[1:]) if b > a + 1], [])

    def test_nothing_reads_replay(self):
        self.assertNotIn("replay", page_of(told(run_record(MIXED)))[1])

    def test_how_the_log_came_about_is_told(self):
        told_of = {"started_at": "2026-01-02T03:04:05Z", "from": [{"sha256": "ab" * 32}], "extended": [{"trials": 20, "after": 90, "at": "2026-02-03T00:00:00Z"}]}
        text = page_of(run_record({"a": "+"}, provenance=told_of))[1]
        for line in ("<bdi>begun 2026-01-02T03:04:05Z</bdi>", "<bdi>trials taken over from another log, sha256 abababababab</bdi>",
                     "! note: extended to 20 trials a case after 90 trials, at 2026-02-03T00:00:00Z"):
            self.assertIn(f"<li>{line}</li>", text)
        record = run_record({"a": "+-", "b": "++"})
        for row, second in zip(record["results"], (7, 1, 9, None)):
            row["started_at"] = second and f"2026-01-02T03:04:0{second}Z"
        self.assertIn("<li><bdi>begun 2026-01-02T03:04:01Z</bdi></li><li><bdi>last trial begun 2026-01-02T03:04:09Z</bdi></li>", page_of(record)[1])
        for odd in ([], "x", {"from": [1, None], "extended": [7, None], "started_at": {}}, {"from": 7, "extended": "x"}):
            page_of(run_record({"a": "+"}, provenance=odd))

    def test_a_refusal_says_so(self):
        answers = answers_of(page_of(run_record(MIXED, refuses=("refused",)))[2])
        self.assertEqual(answers["#s0c2g0"]["output"], "none: the input was refused, as it must be")

    def test_a_long_reply_is_cut_and_says_how_much_is_missing(self):
        record = run_record({"a": "-"})
        record["results"][0]["output"] = "x" * 2001
        self.assertIn("xx</code></pre><small>and 1 more character, in the log</small>", page_of(record)[1])

    def test_the_summary_tells_both_intervals_in_words(self):
        _, _, tree = page_of(run_record(QWEN, "qwen", REFUSES))
        self.assertEqual(words(next(elements(tree, "p", "rate"))), "0.814 passed 57 of 70 model calls")
        self.assertEqual([words(line) for line in elements(next(elements(tree, "ul")), "li")],
                         ["95 % interval for these 7 cases, new trials: 0.71 to 0.89", "95 % interval for new cases like these: 0.44 to 0.97",
                          "with the 2 cases that need none: 77 of 90, 0.856; 95 % interval 0.77 to 0.91",
                          "One trial alone would have said 7 to 9 of 9",
                          "To within 0.05, these 9 cases: about 22 trials a case, 108 trials more, 54.00 s at 0.50 s a trial",
                          "To within 0.05, new cases: at 9 cases no number of trials does (0.217 stays); about 132 cases at 10 trials, "
                          "1230 trials more, 10 min 15 s at 0.50 s a trial"])

    def test_what_cannot_be_estimated_is_said(self):
        self.assertIn("95 % interval for these 2 cases, new trials: none: one trial a case",
                      page_of(run_record({"a": "+", "b": "-"}))[1])
        self.assertIn("95 % interval for new cases like it: none: one case", page_of(run_record({"a": "+-"}))[1])

    def test_incomplete_trials_bound_the_rate(self):
        self.assertIn("<li>At most 0.750 had the 1 incomplete trial passed</li>", page_of(run_record({"a": "+-", "b": "+!"}))[1])

    def test_the_curve_is_told_in_numbers_too(self):
        made, _, tree = page_of(run_record(QWEN))
        heads, *rows = table_of(tree, "Chances at a few k, mean over 9 cases")
        self.assertEqual(heads, ["k trials", "at least one passes", "95 % interval", "all pass", "95 % interval"])
        for k, at_k, at_band, power, power_band in rows:
            values, band = (made["systems"][0][key][k] for key in ("curve", "curve_band"))
            self.assertEqual((float(at_k), float(power)), (round(values["pass_at_k"], 3), round(values["pass_power_k"], 3)))
            self.assertEqual([at_band, power_band], [report.span(band["pass_at_k"]), report.span(band["pass_power_k"])])
        self.assertEqual([row[0] for row in rows], ["1", "2", "3", "5", "10"])

    def test_failures_by_check_and_incomplete_by_cause_with_their_cases(self):
        _, _, tree = page_of(run_record(MIXED))
        self.assertEqual(table_of(tree, "Failed trials by check")[1:],
                         [["triage-outcome", "6", "a 1, b 5"], ["failure-criteria", "1", "a 1"]])
        self.assertEqual(table_of(tree, "Incomplete trials by cause")[1:], [["TimeoutError", "3", "a 2, b 1"]])

    def test_a_case_tells_how_often_it_passed_and_how_long_it_took(self):
        _, _, tree = page_of(told(run_record(MIXED, refuses=("refused",))))
        self.assertEqual([words(next(elements(case, "h4"))) for case in elements(tree, "section", "case")],
                         ["small 2/6 passed, 3 different outputs, latency median 0.21 s, p90 0.23 s (n 4)",
                          "small 0/6 passed, 1 different output, latency median 0.29 s, p90 0.31 s (n 5)", "small 6/6 passed",
                          "small 6/6 passed, 1 different output, latency median 0.40 s, p90 0.43 s (n 6)"])

    def test_costs_runtimes_and_doubts_are_told(self):
        record = run_record({"a": "+-"}, metadata={"prompt_eval_count": 150, "eval_count": 12, "eval_duration_s": 0.25})
        record["results"][0]["metadata"]["server_version"] = "0.33.0"
        record["results"][1]["metadata"]["server_version"] = "0.34.0"
        _, text, _ = page_of(record)
        for line in ("tokens out: 24, median 12 (n 2), median 48 a second", "server version: 0.33.0 (1 trial)",
                     "! note: the trials differ in server version: 0.33.0 (1 trial), 0.34.0 (1 trial)"):
            self.assertIn(line, text)

    def test_plan_and_identity(self):
        _, _, tree = page_of(run_record({"a": "+"}, provenance={"environment": {"python": "3.11.7", "server": {"gpu_percent": 100}}}))
        rows = dict(table_of(tree, "What was measured")[1:])
        for name, value in (("system name", "small"), ("case_set sha256", "0" * 64), ("recording_sha256", "1" * 64), ("trials", "1"),
                            ("provenance environment python", "3.11.7"), ("provenance environment server gpu_percent", "100")):
            self.assertEqual(rows[name], value)

    def test_a_stopped_run_has_the_curve_of_its_complete_rounds_and_no_rate(self):
        made, text, tree = page_of(run_record(STOPPED))
        self.assertEqual(words(next(elements(tree, "p", "rate"))), "9 trials not run")
        self.assertIn("no curve and no interval of the whole. To resume, give the bench.py command", text)
        self.assertIn("<figcaption>Curve of the 2 complete rounds alone.</figcaption>", text)
        self.assertEqual([row[0] for row in table_of(tree, "Chances")[1:]], ["1", "2"])
        self.assertNotIn('class="band', text)
        self.assertIn("No curve: no round of all cases is complete.", page_of(run_record({"a": "+.", "b": ".."}))[1])

    def test_two_systems_are_compared_with_the_cases_that_flip(self):
        one, two = run_record({"a": "++++++++", "b": "++------", "c": "++++++++"}, "one"), run_record(
            {"a": "--------", "b": "-++++++-", "c": "++++++++"}, "two")
        made, text, tree = page_of(one, two)
        comparison = made["comparisons"][0]
        self.assertIn(report.finding(comparison), words(tree))
        self.assertEqual(pair_of(tree), {
            "a": [["one", "✓✓✓✓✓✓✓✓", "8/8"], ["two", "✗✗✗✗✗✗✗✗", "0/8"], ["flips", "▲▲▲▲▲▲▲▲", "▲ 8"], "+8only one"],
            "b": [["one", "✓✓✗✗✗✗✗✗", "2/8"], ["two", "✗✓✓✓✓✓✓✗", "6/8"], ["flips", "▲ ▼▼▼▼▼ ", "▲ 1 ▼ 5"], "-4"],
            "c": [["one", "✓✓✓✓✓✓✓✓", "8/8"], ["two", "✓✓✓✓✓✓✓✓", "8/8"], "+0"]})
        case = next(case for case in elements(tree, "section", "case"))
        self.assertEqual([words(next(elements(column, "bdi"))) for column in elements(case, "section")], ["one", "two"])
        self.assertEqual([row[1] for row in table_of(tree, "passed 18 and 14 of 24: +0.167, trials paired by number")[1:]],
                         [report.span(comparison[scope]["interval"], "+") for scope in ("same_cases", "new_cases")])
        self.assertIn("<li><bdi>trials that only one of them passed: one 9, two 5</bdi></li>", text)
        self.assertIn("p &lt; 0.001", page_of(run_record({"a": "+" * 12}), run_record({"a": "-" * 12}))[1])
        self.assertEqual([row[:3] for row in table_of(tree, "The systems")[1:]],
                         [["one", "0.750", "0.55 to 0.88"], ["two", "0.583", "0.39 to 0.76"]])

    def test_systems_that_cannot_be_compared_say_why(self):
        self.assertIn("No comparison: <bdi>1 trial of small (2) not run", page_of(run_record({"a": "++"}), run_record({"a": "+."}))[1])

    def test_systems_of_different_length_are_compared_on_what_both_have(self):
        _, text, tree = page_of(run_record({"a": "+-"}, "one"), run_record({"a": "-+-+"}, "two"))
        self.assertEqual(pair_of(tree), {"a": [["one", "✓✗", "1/2"], ["two", "✗✓", "1/2"], ["flips", "▲▼", "▲ 1 ▼ 1"], "+0"]})
        self.assertIn("<li><bdi>compared on the trials that both have, 0 to 1; 2 more of two left out</bdi></li>", text)

    def test_what_differs_stands_before_the_numbers_of_a_comparison(self):
        one, two = run_record({"a": "+-"}, "one"), run_record({"a": "+-"}, "two")
        one["manifest"]["system"]["prompt"], two["manifest"]["system"]["prompt"] = "Sort <it>.", "Sort."
        _, text, tree = page_of(one, two)
        self.assertEqual(table_of(tree, "What differs"), [["what", "one", "two"], ["name", '"one"', '"two"']])
        self.assertIn("-Sort &lt;it&gt;.\n+Sort.", text)
        self.assertLess(text.index("What differs"), text.index("no difference: every trial"))
        self.assertIn("<p>The same system, twice: what they differ in is its own noise.</p>", page_of(one, one)[1])

    def test_the_passes_of_every_case_and_system_in_one_table(self):
        _, _, tree = page_of(run_record({"a": "++", "b": "+-"}, "one"), run_record({"a": "++", "b": "--"}, "two"))
        self.assertEqual(table_of(tree, "Trials that passed"), [["case", "one", "two"], ["b", "1/2", "0/2"], ["a", "2/2", "2/2"]])
        self.assertEqual([cell[1]["class"] for cell in elements(tree, "span") if cell[1].get("class", "").startswith("share")],
                         ["share2", "share0", "share4", "share4"])

    def test_a_baseline_is_compared_but_has_no_section(self):
        records = [run_record({"a": "+-"}, "new"), run_record({"a": "-+"}, "old")]
        made = report.build_report(records, baseline=True)
        made["gates"] = [{"gate": "--min pass@1=0.9", "met": False, "detail": "0.5000, 1 case x 2 trials", "cases": ["a [1/2 trials]"]}]
        tree = Tree(report.html_page(made, records)).open[0]
        self.assertEqual([words(head) for head in elements(tree, "h2")], ["Comparison", "Gates", "new", "Answers", "How to read it"])
        self.assertEqual([words(next(elements(head, "bdi"))) for head in elements(tree, "h4")], ["new", "old (baseline)"])
        gates = next(one for one in elements(tree, "ul") if words(one).startswith("✗"))
        self.assertEqual([words(line) for line in elements(gates, "li")][1:], ["  a [1/2 trials]"])
        self.assertEqual(words(next(elements(gates, "span", "fail"))), "✗ --min pass@1=0.9: NOT MET, 0.5000, 1 case x 2 trials")

    def test_nothing_comes_from_outside_and_nothing_runs(self):
        _, text, tree = page_of(run_record(QWEN, "one", REFUSES), run_record(QWEN, "two", REFUSES))
        metas = [meta[1] for meta in elements(tree, "meta")]
        self.assertIn({"http-equiv": "Content-Security-Policy", "content": "default-src 'none'; style-src 'unsafe-inline'"}, metas)
        self.assertEqual({element[0] for element in elements(tree)} - PAGE_TAGS, set())
        for found in ("src=", "href=\"http", "url(", "@import", "style=\"", "javascript:"):
            self.assertNotIn(found, text)

    def test_the_page_says_its_language_and_title_and_fits_a_phone(self):
        _, _, tree = page_of(run_record(QWEN, "qwen"))
        self.assertEqual(next(elements(tree, "html"))[1], {"lang": "en"})
        self.assertEqual(words(next(elements(tree, "title"))), "small: qwen")
        self.assertIn({"name": "viewport", "content": "width=device-width, initial-scale=1"}, [meta[1] for meta in elements(tree, "meta")])

    def test_ids_are_unique_and_every_link_leads_to_one(self):
        _, _, tree = page_of(told(run_record(MIXED, "one")), run_record(MIXED, "two"))
        ids = [element[1]["id"] for element in elements(tree) if "id" in element[1]]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual({link[1]["href"][1:] for link in elements(tree, "a")} - set(ids), set())

    def test_every_table_has_a_caption_and_scoped_heads(self):
        _, _, tree = page_of(run_record(QWEN, "one"), run_record(QWEN, "two"))
        for table in elements(tree, "table"):
            self.assertEqual(table[2][0][0] if table[2][0] != "\n" else table[2][1][0], "caption")
            for row in elements(table, "tr"):
                self.assertEqual(next(elements(row))[0], "th")
            self.assertLessEqual({head[1].get("scope") for head in elements(table, "th")}, {"row", "col", "rowgroup"})

    def test_text_stands_out_from_its_ground_in_both_schemes(self):
        text = page_of(run_record({"a": "+"}))[1]
        light, dark = (dict(re.findall(r"--([\w-]+): (#\w+);", block)) for block in re.findall(r":root \{ (--.*?)\}", text))
        for colours in (light, dark):
            for ground in ("paper", "soft"):
                for ink in ("ink", "dim", "link", "pass", "fail", "doubt"):
                    self.assertGreaterEqual(contrast(colours[ink], colours[ground]), 4.5, (ink, ground, colours))
            for ink, ground in (("pass", "pass-tile"), ("fail-glyph", "fail"), ("doubt-glyph", "doubt-tile"), ("any", "paper"), ("all", "paper")):
                self.assertGreaterEqual(contrast(colours[ink], colours[ground]), 4.5, (ink, ground, colours))

    def test_a_page_of_9_cases_and_10_trials_is_small(self):
        _, text, _ = page_of(told(run_record(QWEN, "one", REFUSES)), told(run_record(QWEN, "two", REFUSES)))
        self.assertLess(len(text.encode()), 120_000)

    def test_very_long_texts_are_cut(self):
        record = told(run_record({"a": "-!"}))
        record["results"][0]["output"], record["results"][1]["metadata"]["reply"] = "o" * 1_000_000, "r" * 1_000_000
        record["results"][0]["reason"], record["results"][1]["reason"] = "w" * 1_000_000, f"E: {'e' * 1_000_000}"
        self.assertLess(len(page_of(record)[1]), 100_000)

    def test_a_page_of_very_many_cases_shows_the_least_passed_and_names_the_others(self):
        record = run_record({f"case {place}": "+-!" if place % 3 == 0 and place < 9000 else "---" if place < 1000 else "+++" for place in range(5000)})
        for place, row in enumerate(record["results"]):
            row["metadata"]["reply"] = f"{place} " + "reply " * 100
        text = report.html_page(report.build_report([record]), [record])
        self.assertLess(len(text.encode()), 5_000_000)
        self.assertEqual(text.count('<section class="case'), 2333)
        self.assertEqual(re.findall("<summary>(.*?)</summary>", text),
                         ["not shown, of 5000 cases: 2667 passed always"])
        self.assertEqual(set(re.findall('href="#(.*?)"', text)) - set(re.findall('id="(.*?)"', text)), set())


class TokensOnThePage(unittest.TestCase):
    """A page shows how sure the model was of each token, to everybody."""
    odd = ("<script>alert(1)</script>", '" onmouseover="x', "\u202e&amp;", [0xf0, 0x9f], [0x98, 0x80], "1", " ", "\n", "y")

    def page(self, **options):
        chances = [.95, .91, .6, .3, .05, .005, .2, .2, .2]
        replies = [surely(("{", 1), *((token, p, {"<b>": .5}) for token, p in zip(self.odd, chances))), surely(("{", 1), ("z", .5)), surely(("{", 1), ("z", .5))]
        return page_of(sure_record({"one": ("+--", replies)}), **options)

    def test_tokens_are_shaded_and_the_numbers_are_a_table(self):
        _, text, tree = self.page()
        shaded, other = elements(tree, "p", "tokens"), []
        lines = [line for line in shaded if line[1].get("aria-hidden")]
        spans = list(elements(lines[1], "span"))
        self.assertEqual([span[1]["class"] for span in spans], ["t0", "t0", "t0", "t1", "t2", "t3", "t4", "t2", "t2", "t2"])
        self.assertEqual([words(span) for span in spans[4:]], ["\\xf0\\x9f", "\\x98\\x80", "1", " ", "\\n", "y"])
        rows = table_of(tree, "Chances of the tokens; the redder above, the less likely")
        self.assertEqual(rows, [["token", "chance", "likeliest there"], ["{", "100 %", ""], ["z", "50 %", ""]])
        opened = [words(summary) for summary in elements(tree, "summary")]
        self.assertEqual(opened[-2:], ["how sure: the tokens of trial 1, perplexity 1.41", "how sure: the tokens of trial 0, perplexity 4.47"])
        self.assertIn("<bdi>&lt;b&gt;</bdi> 50\xa0%", text)
        self.assertIn('<th scope="row"><bdi>&quot;1&quot;</bdi></th><td class="number">under\xa01\xa0%</td>', text)

    def test_hostile_tokens_are_inert(self):
        _, text, tree = self.page()
        self.assertNotIn("<script", text)
        self.assertNotIn("\u202e", text)
        self.assertEqual({key for element in elements(tree) for key in element[1] if key.startswith("on")}, set())

    def test_the_fork_and_the_sureness_are_on_the_page(self):
        _, _, tree = self.page()
        self.assertIn("parts after {   <script>alert(1)</script> 95 %, <b> 50 %, z 50 %", [words(line) for line in elements(tree, "p", "tokens")][0])
        told = [words(item) for item in elements(tree, "li")]
        self.assertIn("z 50 %: 2 failed, trials 1 2", told)
        self.assertIn("too few to say how well that tells them apart (n 1 and 2, 10 of each needed)", told)

    def test_a_page_without_log_probabilities_has_none_of_it(self):
        _, text, _ = page_of(run_record({"one": "+-"}))
        self.assertFalse([word for word in ('class="tokens"', "How sure", "how sure", "parts after") if word in text])

    def test_a_long_reply_is_cut_and_many_cases_have_no_room(self):
        long = surely(*[(f"t{number}", .5) for number in range(40)])
        for cases, shown in ((50, 40), (125, 30), (400, 0)):
            record = sure_record({f"case{number}": ("-", [long]) for number in range(cases)})
            text = report.html_page(report.build_report([record]), [record])
            self.assertEqual(text.count('<span class="t1" title='), cases * shown)
            self.assertEqual(text.count("<small>and 10 more tokens, in the log</small>"), cases * (shown == 30))


class ThePicture(unittest.TestCase):
    def drawn(self, record):
        """(the picture's texts, {class: number of marks in the paths of that class}, its root)."""
        root = xml.etree.ElementTree.fromstring(picture_of(record))
        paths = {}
        for path in root.iter("{http://www.w3.org/2000/svg}path"):
            paths[path.get("class")] = paths.get(path.get("class"), 0) + path.get("d").count("M")
        return [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")], paths, root

    def test_it_draws_every_trial_with_a_shape_of_its_verdict(self):
        _, paths, _ = self.drawn(run_record(STOPPED))
        for kind, trials in (("pass", 5), ("fail", 3), ("incomplete", 1), ("absent", 9)):
            self.assertEqual((paths[f"tile {kind}"], paths[f"glyph {kind}"]), (trials + 1, trials + 1), kind)    # one in the legend

    def test_it_tells_names_counts_and_notes_as_text(self):
        texts, _, _ = self.drawn(run_record(QWEN, "qwen", REFUSES))
        for text in (*QWEN, "7/10", "77/90", "flaky", "no model call", "small, 9 cases × 10 trials: 77 passed, 13 failed", "cases that a trial passed",
                     "new cases like these", "pass rate, 95 % interval", "k of the 10 trials of a case", "chance, mean over 9 cases",
                     "Curve of all 90 trials, with bands: 95 % intervals for new cases like these", "1.000", "0.667"):
            self.assertIn(text, texts)

    def test_it_says_in_words_what_it_shows(self):
        root = self.drawn(run_record(QWEN, "qwen"))[2]
        self.assertEqual((root.get("role"), root.get("aria-labelledby")), ("img", "name words"))
        self.assertEqual((root[0].get("id"), root[0].text, root[1].get("id")), ("name", "small: qwen", "words"))
        self.assertIn("k 10: at least one passes 1.000, all pass 0.667", root[1].text)

    def test_every_trial_is_drawn_and_nothing_over_another(self):
        for trials, marks in ((17, "+--!"), (20, "+--!"), (50, "+--!"), (200, "+--!"), (5000, "+")):
            _, paths, root = self.drawn(run_record({"a": (marks * trials)[:trials], "b": "." * trials}))
            tiled = trials <= 17
            self.assertEqual(("tile pass" in paths, "bar pass" in paths), (tiled, not tiled))
            ends = []
            for path in root.iter("{http://www.w3.org/2000/svg}path"):
                if path.get("class").split()[0] in ("tile", "bar"):
                    boxes = [list(map(float, box)) for box in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)h", path.get("d"))]
                    ends += [(y, x, x + width) for x, y, width, _ in boxes if y > 100]
            self.assertLessEqual(max(right for _, _, right in ends), 208 + 240.1)
            row = sorted((left, right) for y, left, right in ends if y < 140)
            for (_, right), (left, _) in zip(row, row[1:]):
                self.assertLess(right, left + 0.11, trials)    # coordinates are to a tenth

    def test_long_runs_of_one_verdict_are_one_bar_and_many_trials_share_bars_by_their_share(self):
        self.assertEqual(report.bars_drawing(["pass"] * 99 + ["fail"], 0, 10, 2),
                         ['<path class="bar pass" d="M0 4h198v6h-198z"/>', '<path class="bar fail" d="M198 10h2v6h-2z"/>'])
        self.assertEqual(report.bars_drawing(["pass", "fail"] * 240, 0, 10, 1),
                         ['<path class="bar pass" d="M0 7h480v3h-480z"/>', '<path class="bar fail" d="M0 10h480v3h-480z"/>'])

    def test_of_many_cases_those_that_did_not_always_pass_are_drawn_and_the_rest_counted(self):
        texts, _, _ = self.drawn(run_record({f"case {place}": "+-" if place < 9 else "--" if place < 12 else "++" for place in range(100)}))
        self.assertEqual([text for text in texts if text.startswith("case ")], [f"case {place}" for place in range(12)])
        self.assertIn("not shown, of 100 cases: 88 passed always", texts)
        texts, _, _ = self.drawn(run_record({f"case {place}": "++-" if place % 2 else "--+" if place % 4 else "---" for place in range(200)}))
        self.assertEqual([text for text in texts if text.startswith("case ")], [f"case {place}" for place in range(80) if place % 4])
        self.assertIn("not shown, of 200 cases: 90 passed sometimes, 50 passed never", texts)
        self.assertIn("50 to 100", texts)

    def test_long_names_keep_their_end_and_fit(self):
        texts, _, _ = self.drawn(run_record({"the-same-long-beginning-of-the-name-1": "+", "語" * 40: "+", "語" * 11: "-"}))
        for text in ("the-same-long-b…e-name-1", "語語語語語語語…語語語語", "語" * 11):
            self.assertIn(text, texts)

    def test_a_stopped_run_shows_its_complete_rounds_or_no_curve(self):
        texts, paths, _ = self.drawn(run_record(STOPPED))
        self.assertIn("Curve of the 2 complete rounds alone", texts)
        self.assertNotIn("band any", paths)
        self.assertNotIn("curve any", self.drawn(run_record({"a": "+.", "b": ".."}))[1])

    def test_it_reads_on_light_and_dark_and_needs_nothing_from_outside(self):
        text = picture_of(run_record(QWEN))
        self.assertIn("@media (prefers-color-scheme: dark)", text)
        for found in ("var(", "script", "href", "url(", "src=", "@import"):
            self.assertNotIn(found, text)

    def test_one_trial_and_one_case_can_be_drawn(self):
        self.assertIn("0.500", self.drawn(run_record({"a": "+", "b": "-"}))[0])
        self.assertIn("new cases like it", self.drawn(run_record({"a": "+-"}))[0])


# What the writer writes, the readers read

ODD_TEXTS = ("", " ", "x", "a\nb", "\x00\x1b[2J", "\ud800", "\u2028\u202e", "é👩\u200d👩", "<script>&\"'", "|`]]>", "-x", "=1+1", "NotRun", "x" * 3000)
ODD_NAMES = tuple(text for text in ODD_TEXTS if text.strip())
ODD_NUMBERS = (0, -1, 1, 2.5, -0.0, 1e15, 1.1e15, 1e308, 10 ** 30, 5e-324, True, False, None, math.nan, math.inf)
ODD_KEYS = (*harness.AMOUNTS, *harness.RUNTIMES, "seed", "reply", "thinking", "digest", "left_out", "logprobs", "tries", "x", "")


def odd_value(rng, depth=3):
    """Any value, of which JSON can hold most."""
    kind = rng.randrange(8 if depth else 6)
    if kind < 6:
        return rng.choice(ODD_TEXTS if kind < 3 else ODD_NUMBERS)
    found = [odd_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return found if kind == 6 else dict(zip(rng.sample(ODD_TEXTS, len(found)), found))


class OddSystem(Scripted):
    """A system that is as odd as its seed has it."""

    def __init__(self, seed):
        super().__init__(self.end)
        rng, self.seed = random.Random(seed), seed
        self.name, self.version, self.mode, self.model, self.prompt = rng.sample(ODD_NAMES, 5)

    def seed_for(self, trial):
        return odd_value(random.Random(trial))

    def end(self, case, trial):
        rng = random.Random(f"{self.seed} {case['id']!r} {trial}")
        metadata = {key: odd_value(rng) for key in rng.sample(ODD_KEYS, rng.randrange(9))}
        error = rng.choice((ValueError, TimeoutError, KeyError, type("NotRun", (Exception,), {}), type("é<|\n", (Exception,), {})))(odd_value(rng))
        error.metadata = rng.choice((metadata, 3, None))
        return rng.choice((Rejection(rng.choice(ODD_TEXTS)), error, Answer(odd_value(rng), odd_value(rng)), Answer((1,), metadata),
                           *[Answer(odd_value(rng), metadata)] * 4, *[Answer({"a": 1}, metadata)] * 4))


class OddRuns(InFolder):
    def command(self, module, *words):
        status, out, err = called(module, *words)
        self.assertEqual((status, [line for line in err.split("\n") if line.startswith("error:")]), (0, []), words)
        return out, err

    def plan(self, rng):
        """A task file of odd names and texts."""
        expectations = ({"a": 1}, {"a": {"not": {"equals": 2}}}, {"b": None})
        cases = [{"id": name, "class": rng.choice(ODD_NAMES), "input": rng.choice(ODD_TEXTS), "expect": rng.choice(expectations)}
                 for name in rng.sample(ODD_NAMES, 4)]
        cases[0]["expect_rejection"] = cases[0].pop("expect") and "x"
        return self.write("task.json", json.dumps({"name": rng.choice(ODD_NAMES), "prompt": "{input}", "schema": {"type": "object"}, "cases": cases}))

    def test_odd_metadata_outputs_names_and_times_are_written_resumed_converted_graded_and_reported(self):
        attempt, recording, run = harness.attempt, self.folder / "recording.json", self.folder / "run.json"
        formats = [self.folder / f"report{suffix}" for suffix in report.FORMATS]
        outs = [word for path in formats for word in ("--out", path)]
        for seed in range(6):
            rng, found = random.Random(seed), []
            task, self.log = self.plan(rng), self.folder / f"log{seed}.jsonl"
            words = (task, "--system", "odd:odd", "--trials", 3, "--log", self.log)
            with self.subTest(seed=seed), mock.patch.object(harness, "load_system", lambda spec, cases: OddSystem(seed)), \
                    mock.patch.object(harness, "attempt", lambda system, case, trial, clock: attempt(
                        system, case, trial, lambda: rng.choice((rng.uniform(-5, 5), 1e16, -1e16)))):
                self.command(bench, *words)
                data = self.log.read_bytes()
                self.log.write_bytes(data[:rng.randrange(data.index(b"\n") + 1, len(data))])
                self.command(bench, *words, "--workers", 2)
                self.command(bench, task, "--log", self.log, "--convert", recording)
                self.command(harness, "run", "--recording", recording, "--out", run, "--task", task)
                for path in (self.log, run):
                    self.command(report, path, "--failures", *(("--task", task, *outs[:-2]) if path == run else outs))     # spans need times
                    found.append([made.read_bytes() for made in formats])
                    xml.etree.ElementTree.fromstring((self.folder / "report.xml").read_bytes())
                self.assertEqual(*[{**json.loads(made[0]), "sources": None} for made in found])

    def test_an_amount_that_is_none_is_left_out_and_said_once(self):
        warnings, told = [], {"eval_count": "14", "prompt_eval_count": 1.1e15, "load_duration_s": -1, "eval_duration_s": 2.5, "left_out": 3, "seed": 1}
        self.run_small(Scripted(lambda case, trial: Answer(dict(GOOD), told)), warn=warnings.append)
        left_out = {"prompt_eval_count": "1100000000000000.0", "eval_count": "14", "load_duration_s": "-1"}
        for row in self.rows():
            self.assertEqual(row["metadata"], {"eval_duration_s": 2.5, "seed": 1, "left_out": left_out, "workers": 1})
        self.assertEqual(warnings, [f"scripted says {key} is {value}, not a number from 0 to 1e+15: such are left out of the log"
                                    for key, value in left_out.items()])

    def test_no_clock_makes_a_latency_that_is_refused(self):
        times = {(5, 3): 0.0, (0, 1e16): 1e15, (0, math.nan): 0.0, (1, 3): 2}
        self.assertEqual([harness.attempt(Scripted(), case(), 0, steps(start, start, end))["latency_s"] for start, end in times], list(times.values()))

    def test_the_reader_of_a_log_refuses_what_its_writer_leaves_out(self):
        self.run_small(trials=1)
        lines = self.log.read_bytes().splitlines()
        lines[1] = json.dumps({**json.loads(lines[1]), "metadata": {"eval_count": "14"}}).encode()
        self.log.write_bytes(b"\n".join(lines) + b"\n")
        self.assert_refused('line 2: metadata.eval_count is "14", not a number from 0 to 1e+15', bench.read_log, self.log)


class HostileText(unittest.TestCase):
    def record(self, *marks):
        """A run record of two cases whose every free text is hostile."""
        named = {"name": HOSTILE, "sha256": HOSTILE}
        odd = {"seed": HOSTILE, "reply": HOSTILE, "thinking": HOSTILE, "server_version": HOSTILE}
        made = run_record(dict(zip((HOSTILE, HOSTILE[::-1]), marks)), HOSTILE, metadata=odd, task=named, case_set=named,
                          recording_sha256=HOSTILE, provenance={"environment": {"hardware": HOSTILE, "server": {HOSTILE: HOSTILE}}})
        made["manifest"]["system"].update(model=HOSTILE, prompt=HOSTILE, tools=[HOSTILE], version=HOSTILE, options={HOSTILE: HOSTILE})
        made["results"][0]["metadata"]["server_version"] = "1"
        for row in made["results"]:
            row["class"] = HOSTILE
            row["output"] = {HOSTILE: HOSTILE} if row["verdict"] != "incomplete" else None
            row["check"], row["reason"] = row["check"] and HOSTILE, row["reason"] and HOSTILE
        return made

    def setUp(self):
        self.records = [self.record("+-x!", "!-+x"), self.record("++++", "++x-")]

    def assert_printable(self, text):
        self.assertEqual(re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]", text), [])
        text.encode("utf-8")

    def test_the_page_shows_it_as_text(self):
        made = report.build_report(self.records)
        made["gates"] = [{"gate": HOSTILE, "met": False, "detail": HOSTILE, "cases": [HOSTILE]}]
        records = list(map(harness.compact, self.records))
        odd = {"id": HOSTILE, "input": HOSTILE, "expect": {HOSTILE: HOSTILE}, "failure_criteria": [{"field": HOSTILE, "equals": HOSTILE, "why": HOSTILE}]}
        records[0].asked = {HOSTILE: odd, HOSTILE[::-1]: {**odd, "input": {HOSTILE: [HOSTILE]}, "expect": HOSTILE}}
        text = report.html_page(made, records)
        self.assert_printable(text)
        tree = Tree(text).open[0]
        self.assertEqual({element[0] for element in elements(tree)} - PAGE_TAGS, set())
        self.assertEqual({name for element in elements(tree) for name in element[1] if name.startswith("on")}, set())
        self.assertIn(HARMLESS, words(next(elements(tree, "h1"))))
        self.assertEqual(grid_of(tree)[0][1][1][2], f"failed: {HARMLESS}")

    def test_a_reply_keeps_its_line_breaks(self):
        replies = [words(code) for code in elements(page_of(*self.records)[2], "code")]
        self.assertIn(HARMLESS.replace(r"\r\n", "\\r\n"), replies)

    def test_the_picture_shows_it_as_text(self):
        text = picture_of(self.records[0])
        self.assert_printable(text)
        root = xml.etree.ElementTree.fromstring(text)
        self.assertEqual({element.tag.partition("}")[2] for element in root.iter()},
                         {"svg", "title", "desc", "style", "rect", "text", "path", "circle"})
        self.assertIn(HARMLESS, root[0].text)


class SameBytes(unittest.TestCase):
    def test_hash_seed_and_locale_change_nothing(self):
        record = told(run_record(MIXED | {"übermäßig": "++----"}, "größe"))
        code = (f"import json, sys, report\nfrom {report.html_page.__module__} import html_page, svg_picture\n"
                "record = json.load(sys.stdin)\nmade = report.build_report([record, record])\n"
                "text = html_page(made, [record, record]) + svg_picture(made['systems'][0], record)\nsys.stdout.buffer.write(text.encode())")
        made = set()
        for changes in ({"PYTHONHASHSEED": "1", "LC_ALL": "C"}, {"PYTHONHASHSEED": "2", "LC_ALL": "de_DE.UTF-8", "PYTHONUTF8": "1"}):
            done = subprocess.run([sys.executable, "-c", code], input=json.dumps(record).encode(), capture_output=True, check=True, timeout=60,
                                  env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **changes})
            made.add(done.stdout)
        self.assertEqual(len(made), 1)
        self.assertIn("übermäßig".encode(), made.pop())


# Other systems, as far as they can be played here

AS_WINDOWS = """
import os, re, signal, sys, types
import asyncio, ctypes, multiprocessing, shutil, socket, subprocess, tempfile, threading     # which are themselves there
sys.modules.update(fcntl=None, resource=None, msvcrt=types.SimpleNamespace(LK_NBLCK=2, locking=lambda *words: None))
for module, names in ((os, "fork killpg register_at_fork getuid geteuid mkfifo setsid getpgid kill chown"),
                      (signal, "SIGHUP SIGKILL SIGCONT SIGXFSZ setitimer ITIMER_VIRTUAL")):
    for name in names.split():
        delattr(module, name)
signal.SIGBREAK = signal.SIGUSR1
sys.path.insert(0, sys.argv[1])
import harness
harness.ON_WINDOWS, harness.PYTHON, harness.REMOVE = True, "python", "del"
import bench, model_triage, report
bench.LOCK_BYTE = 1 << 40
model_triage.group_options = dict       # the flag is none that this Python takes
model_triage.end_strays = lambda leader, mark: None
assert signal.SIGUSR1 in bench.ENDING
def run(module, *words):
    sys.argv[0] = module.__name__ + ".py"
    status = module.main(list(words))
    sys.stdout.flush()
    assert status == 0, (status, words)
run(bench, "--trials", "2", "--log", "C:\\\\x y\\\\a.jsonl")
run(bench, "--trials", "2", "--log", "C:\\\\x y\\\\a.jsonl")
run(bench, "--trials", "1", "--command", sys.executable + " -S -E -c \\"print('{}')\\"", "--log", "own.jsonl")
run(report, "C:\\\\x y\\\\a.jsonl", "--out", "a.html", "--out", "a.json")
run(report, "--verify", "a.json", "C:\\\\x y\\\\a.jsonl")
run(bench, "--log", "own.jsonl", "--convert", "own.json")
"""


class OtherSystems(InFolder):
    """What Windows and macOS do otherwise, each difference at the one place that knows of it."""

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.multiple(harness, ON_WINDOWS=True, PYTHON="python", REMOVE="del"))

    @unittest.skipIf(os.name == "nt", "this is Windows itself")
    def test_all_programs_run_without_what_posix_alone_has(self):
        done = subprocess.run([sys.executable, "-c", AS_WINDOWS, HERE], cwd=self.folder, capture_output=True, encoding="utf-8", timeout=60,
                              env={**os.environ, "PYTHONIOENCODING": "cp1252"}, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("bayes: planned 18, already logged 18, ran 0, not run 0", done.stdout)
        self.assertIn('report  python report.py "', done.stdout)
        self.assertIn("MATCH\n", done.stdout)
        self.assertTrue(done.stdout.endswith("own.json: the recording of own.jsonl\n"))

    @contextlib.contextmanager
    def opened(self):
        """The files that harness.py opens; that one is open is noted when a file is renamed or removed meanwhile."""
        files, faults, told = [], [], (os.replace, Path.unlink)

        def opening(*words, **options):
            files.append(open(*words, **options))
            return files[-1]

        def seeing(function, *words):
            faults.extend(file.name for file in files if not file.closed)
            return function(*words)
        with mock.patch.object(harness, "open", opening, create=True), \
                mock.patch("os.replace", lambda *words: seeing(told[0], *words)), \
                mock.patch.object(Path, "unlink", lambda path: seeing(told[1], path)):
            yield files, faults

    def test_no_open_file_is_renamed_or_removed(self):
        with self.opened() as (files, faults):
            harness.write(self.folder / "a.json", 1)
            with mock.patch("os.fsync", side_effect=OSError(errno.ENOSPC, "full")):
                self.assert_refused("full", harness.write, self.folder / "a.json", 2)
        self.assertEqual((len([file for file in files if str(file.name).endswith(".tmp")]), faults), (2, []))
        self.assertEqual([entry.name for entry in self.folder.iterdir()], ["a.json"])

    def test_a_file_that_another_program_holds_for_a_moment_is_replaced_all_the_same(self):
        replace, refused = os.replace, [PermissionError(13, "Permission denied")] * 3
        with mock.patch("os.replace", lambda *paths: (_ for _ in ()).throw(refused.pop()) if refused else replace(*paths)), mock.patch("time.sleep"):
            harness.write(self.folder / "a.json", 1)
            refused += [PermissionError(13, "Permission denied")] * 9
            self.assert_refused("a.json: cannot be written: Permission denied", harness.write, self.folder / "a.json", 2)
        self.assertEqual([(entry.name, entry.read_text()) for entry in self.folder.iterdir()], [("a.json", "1\n")])

    def test_the_empty_log_of_a_run_that_did_not_begin_is_closed_and_then_removed(self):
        log = bench.LogFile(self.log)
        with mock.patch.object(Path, "unlink", lambda path: self.assertIsNone(log.fd) or os.unlink(path)):
            log.__exit__(None, None, None)
        self.assertFalse(self.log.exists())
        log = bench.LogFile(self.log)
        with mock.patch.object(Path, "unlink", side_effect=PermissionError(13, "another run has it open")):
            log.__exit__(None, None, None)
        self.assertTrue(self.log.exists())

    def test_a_byte_far_behind_the_log_is_locked(self):
        def locking(fd, mode, count):
            places.append((os.lseek(fd, 0, os.SEEK_CUR), mode, count))
            if len(places) > 1:
                raise OSError(*faults.pop())
        places, faults = [], [(errno.EINVAL, "no locks here"), (errno.EACCES, "Permission denied")]
        with mock.patch.multiple(bench, create=True, fcntl=None, LOCK_BYTE=1 << 40, msvcrt=SimpleNamespace(LK_NBLCK=2, locking=locking)):
            with bench.LogFile(self.log) as log:
                self.assert_refused("another bench.py is writing this log", bench.LogFile, self.log)
                self.assert_refused("its file system", lambda: bench.LogFile(self.log, warn=lambda text: (_ for _ in ()).throw(RunError(text))))
                log.append([{"a": 1}])
        self.assertEqual(places, [(1 << 40, 2, 1)] * 3)
        self.assertEqual(self.log.read_bytes(), b'{"a": 1}\n')

    def test_macos_gets_the_sync_that_reaches_the_disk_where_its_file_system_has_it(self):
        for fault, synced in ((None, []), (OSError(errno.ENOTTY, "none"), [7])):
            found, asked = [], mock.Mock(side_effect=fault)
            with mock.patch.object(harness, "fcntl", SimpleNamespace(F_FULLFSYNC=51, fcntl=asked)), mock.patch("os.fsync", found.append):
                self.assertTrue(harness.sync(7))
            self.assertEqual((asked.call_args.args, found), ((7, 51), synced))

    def test_a_stale_lock_file_is_left_for_the_reader_to_remove(self):
        self.folder.joinpath("log.jsonl.lock").write_text(f"{bench.platform.node()} {os.getpid()} abc\n")
        with mock.patch("os.kill", side_effect=AssertionError), mock.patch("bench.lock", side_effect=OSError(errno.ENOLCK, "none")):
            self.assert_refused(f"remove this file: del {self.log}.lock", bench.LogFile, self.log)

    def console(self, known=True, settable=True):
        """A console of Windows and what was asked of it: mode 3, to which 4 is added where it can be."""
        def get(handle, mode):
            mode._obj.value = 3
            return known
        kernel = SimpleNamespace(GetConsoleMode=get, SetConsoleMode=lambda handle, mode: self.asked.append((handle.value, mode)) or settable)
        self.asked = []
        return mock.patch.dict(sys.modules, msvcrt=SimpleNamespace(get_osfhandle=lambda number: number + 40)), \
            mock.patch("ctypes.windll", SimpleNamespace(kernel32=kernel), create=True)

    def test_a_console_is_told_to_obey_escape_sequences_or_gets_none(self):
        stream = mock.Mock(isatty=lambda: True, fileno=lambda: 1, encoding="utf-8")
        for known, settable, obeys in ((True, True, True), (True, False, False), (False, True, False)):
            modules, windows = self.console(known, settable)
            with modules, windows, mock.patch.dict(os.environ, {"TERM": ""}):
                self.assertEqual((bench.wants_colour(stream, "auto"), bench.Painter(stream).moves), (obeys, obeys))
                self.assertTrue(bench.terminal(stream, "always").colour)
            self.assertEqual(self.asked, [(41, 7)] * 3 * known)
        self.assertFalse(bench.obeys(io.StringIO()))

    def test_commands_are_quoted_for_the_shells_that_are_there(self):
        words = ["python", r"C:\tools\bench.py", r"C:\my logs\a.jsonl", 'say "x"', "a&b", "", "late-*"]
        self.assertEqual(harness.in_shell(*words), r'python C:\tools\bench.py "C:\my logs\a.jsonl" "say \"x\"" "a&b" "" "late-*"')
        with mock.patch.object(harness, "Path", __import__("pathlib").PureWindowsPath):
            self.assertEqual(harness.as_word(r"runs\a.jsonl"), "runs/a.jsonl")
            self.assertEqual(harness.as_word("-a.jsonl"), "./-a.jsonl")

    def test_the_words_of_a_command_keep_their_backslashes(self):
        words = model_triage.command_words(r"""C:\tools\py.exe "a b.py" --in="C:\a b\c" '{"k": 1}' x""")
        self.assertEqual(words, [r"C:\tools\py.exe", "a b.py", r"--in=C:\a b\c", '{"k": 1}', "x"])

    def test_a_program_is_named_with_its_whole_path(self):
        known = {"agent": r"C:\bin\agent.cmd", os.path.join("there", "bin/own"): r"there\bin\own.bat"}
        with mock.patch("shutil.which", known.get):
            self.assertEqual([model_triage.runnable([word, "x"], "there")[0] for word in ("agent", "bin/own", "none")],
                             [r"C:\bin\agent.cmd", r"there\bin\own.bat", "none"])

    def test_a_program_and_what_it_began_end_with_its_job(self):
        process, asked = mock.Mock(pid=7, _handle=70), []
        names = ("CreateJobObjectW", "SetInformationJobObject", "AssignProcessToJobObject", "TerminateJobObject", "CloseHandle")

        def called_as(name):
            def call(*words):
                asked.append((name, *(getattr(word, "value", word) for word in words if not isinstance(word, bytes))))
                return 5
            return call
        kernel = SimpleNamespace(**{name: called_as(name) for name in names})
        with mock.patch("ctypes.windll", SimpleNamespace(kernel32=kernel), create=True):
            job = model_triage.Job(process)
            job.end()
            del job
        self.assertEqual([call[0] for call in asked], list(names))
        self.assertEqual((asked[1][1:3], asked[2], asked[3]), ((5, 9), (names[2], 5, 70), (names[3], 5, 1)))
        model_triage.Job(process).end()     # where there are none
        with mock.patch("subprocess.run") as run:
            for status, count in ((None, 1), (0, 1)):
                process.poll.return_value = status
                model_triage.end_group(process)
                self.assertEqual(run.call_count, count)
        self.assertEqual(run.call_args.args[0], ["taskkill", "/T", "/F", "/PID", "7"])
        self.assertEqual(model_triage.group_options(), {"creationflags": 0x200})

    def test_a_folder_that_a_killed_program_holds_for_a_moment_is_removed(self):
        (self.folder / "work").mkdir()
        remove, refused = shutil.rmtree, [PermissionError(13, "in use")] * 3
        with mock.patch("shutil.rmtree", lambda path: (_ for _ in ()).throw(refused.pop()) if refused else remove(path)), mock.patch("time.sleep"):
            model_triage.remove_tree(self.folder / "work")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_what_a_program_prints_has_the_same_ends_of_lines_everywhere(self):
        self.assertEqual(model_triage.lines_of("a\r\nb\r\n"), "a\nb\n")
        self.assertEqual(model_triage.shown_end(b"x\r\ny\r\n", ""), "x\ny")

    def test_no_name_that_is_made_here_is_refused_elsewhere(self):
        long = bench.default_log("m" * 300, "t" * 300, "l" * 40, ["--case", "c" * 300], {"part": 100, "of": 128})
        self.assertRegex(long.name, r"^t{80}.{40}-100-of-128\.jsonl$")
        self.assertNotEqual(long, bench.default_log("m" * 300, "t" * 300, "k" * 40, ["--case", "c" * 300], {"part": 100, "of": 128}))
        self.assertRegex(bench.default_log('a:b*?"<>|\\/', "nul", 'x"?').name, r"^[a-z0-9._-]+\.jsonl$")
        for path in ("a?", "a*b/c", "con", "x/NUL.txt", "a.", "a /b", "lpt1", 'a"', "a|b", "<a"):
            self.assertIn("as every system takes it", harness.path_problem(path) or "", path)
        self.assertIsNone(harness.path_problem("console/.hidden/com10/a b.py"))


# The records and the README

def outputs_sha256(recording):
    """A hash over [case_id, trial, its output or error] of every trial in plan order, latency and times left out."""
    cases, trials = list(recording["responses"]), recording["trials"]
    return harness.sha256(harness.canonical([
        [case_id, trial, bench.response_part(recording["responses"][case_id][trial])] for trial in range(trials) for case_id in cases]))


MODELS = ("smollm2-135m-instruct-q4_1", "gemma3-270m-pt-q4_k_m")    # of which there are logs


class TheRecords(InFolder):
    loaded = harness.load_cases(CASE_FILE, triage_task)

    logs = sorted((HERE / "recorded").glob("*.jsonl"))

    def rebuild(self, log):
        """Make in this folder what runs/ holds of a log, and its page and picture in any case."""
        made = self.folder / log.stem
        for module, *words in ((bench, "--log", log, "--convert", self.folder / "recording.json"),
                               (harness, "run", "--recording", self.folder / "recording.json", "--out", f"{made}.json"),
                               (report, log, "--out", f"{made}-report.json", "--out", f"{made}.html", "--out", f"{made}.svg")):
            status, out, err = called(module, *words)
            self.assertEqual((status, err), (0, ""))
        return out

    def test_recorded_runs_and_report_match_fresh_runs(self):
        fresh = harness.record(harness.load_system("model_triage:bayes", self.loaded), self.loaded, ["development"], 10)
        recorded = bench.to_recording(HERE / "recorded" / "bayes.jsonl", self.loaded)
        self.assertEqual(outputs_sha256(fresh), outputs_sha256(recorded))
        for kept, made in zip(recorded["responses"].values(), fresh["responses"].values()):
            self.assertEqual([bench.response_part(response) for response in kept], [bench.response_part(response) for response in made])
        reports = [report.system_report(harness.replay(one, triage_task, self.loaded)) for one in (recorded, fresh)]
        for made in reports:
            for case in made["per_case"].values():
                del case["latency_s"]
            del made["planning"]["s_per_trial"]
            for key in ("recording_sha256", "latency_s", "costs", "runtimes", "provenance"):    # times, and how it was run
                del made[key]
        self.assertEqual(reports[0], reports[1])

    def test_the_list_of_recordings_tells_what_each_log_holds(self):
        listed = harness.read_json(HERE / "recorded" / "recordings.json")
        self.assertEqual(sorted(listed), [log.name for log in self.logs])
        for log in self.logs:
            header, rows = bench.read_log(log)
            told = listed[log.name]
            self.assertEqual({key: told[key] for key in bench.COMPARED}, {key: header[key] for key in bench.COMPARED})
            self.assertEqual(told["logged"], len(rows))
            self.assertEqual(told["outputs_sha256"], outputs_sha256(bench.to_recording(log, self.loaded)))
            self.assertEqual(told["file_sha256"], hashlib.sha256(log.read_bytes()).hexdigest())
            self.assertEqual(header["case_set_sha256"], self.loaded["sha256"])
            self.assertEqual(header["task"], harness.task_identity(triage_task))

    def test_what_is_told_of_how_the_models_logs_were_made_is_what_they_hold(self):
        told = (HERE / "recorded" / "README.md").read_text(encoding="utf-8")
        for name, entry in harness.read_json(HERE / "recorded" / "recordings.json").items():
            self.assertIn(f"| `{name}` | {entry['logged']} | ", told)
            if "command" not in entry:
                continue
            header, rows = bench.read_log(HERE / "recorded" / name)
            args = bench.parse_args(shlex.split(entry["command"])[2:])
            self.assertEqual((header["environment"]["hardware"], header["trials"]), (args.hardware, args.trials))
            tag, digest = header["system"]["model"].split("@")
            self.assertIn(f"| `{tag}` | `{digest}` | ", told)
            self.assertIn(tag, entry["command"])
            for word in (header["started_at"][:10], header["environment"]["python"], rows[0]["metadata"]["server_version"]):
                self.assertIn(word, told)

    def test_every_tracked_file_under_runs_is_rebuilt_from_the_records_byte_by_byte(self):
        for log in self.logs:
            self.rebuild(log)
        pictured = {"bayes", "bayes-stopped", "gemma3-270m-pt-q4_k_m"}
        kept = {f"{log.stem}{suffix}" for log in self.logs for suffix in (".json", "-report.json", ".html", ".svg")
                if suffix.endswith("json") or log.stem in pictured}
        self.assertEqual({path.name for path in (HERE / "runs").iterdir() if path.suffix != ".jsonl" and not path.name.startswith("my-")}, kept)
        for name in kept:
            self.assertEqual((HERE / "runs" / name).read_bytes(), (self.folder / name).read_bytes(), name)

    def test_the_three_steps_and_the_log_itself_give_the_same_report(self):
        for log in self.logs:
            direct = self.rebuild(log)
            steps = self.folder / "steps"
            status, out, err = called(report, f"{self.folder / log.stem}.json", *(word for suffix in ("json", "html", "svg") for word in ("--out", f"{steps}.{suffix}")))
            self.assertEqual((status, err), (0, ""))
            for made, suffix in (("-report.json", "json"), (".html", "html"), (".svg", "svg")):
                whole = (self.folder / f"{log.stem}{made}").read_text("utf-8")
                # A log knows its cases and times, a run record does not; and they are two files.
                steps_text = Path(f"{steps}.{suffix}").read_text("utf-8")
                whole, steps_text = (re.sub(r'"sources": \[[^]]*\]', "", text) for text in (whole, steps_text))
                whole = re.sub('(?<=<div class="columns">)<dl>.*?</dl>|<dt>compared</dt><dd>.*?</dd>'
                               '|<li><bdi>(last trial )?begun .*?</li>', "", whole, flags=re.S)
                self.assertEqual(steps_text, whole)
            self.assertEqual(*(re.sub("(wrote|next).*\n", "", text).strip() for text in (out, direct)))

    def test_the_stopped_record_was_really_stopped(self):
        header, rows = bench.read_log(HERE / "recorded" / "bayes-stopped.jsonl")
        self.assertTrue(header["budget_s"] > 0)
        self.assertTrue(9 < len(rows) < 90)
        self.assertEqual([(row["case_id"], row["trial"]) for row in rows],
                         [(case["id"], trial) for case, trial in bench.schedule(harness.plan(self.loaded, ["development"], 10), 10)][:len(rows)])

    def test_a_stopped_and_resumed_run_of_a_model_is_the_undisturbed_one_output_by_output(self):
        for stem in MODELS:
            undisturbed, resumed = (bench.to_recording(HERE / "recorded" / f"{stem}{end}.jsonl", self.loaded) for end in ("", "-stopped-resumed"))
            pairs = [(one, other) for case_id, responses in undisturbed["responses"].items()
                     for one, other in zip(responses, resumed["responses"][case_id], strict=True)]
            self.assertEqual(len(pairs), 90)
            for one, other in pairs:
                self.assertEqual(bench.response_part(one), bench.response_part(other))
            self.assertEqual(sum(response["metadata"].get("after_prime", False) for _, response in pairs), 2, "it was not resumed")
        stopped, resumed = ((HERE / "recorded" / f"{MODELS[0]}-{end}.jsonl").read_bytes() for end in ("stopped", "stopped-resumed"))
        self.assertTrue(resumed.startswith(stopped))

    def standing_in(self, log):
        """(the system of a recorded log, a stand-in server that answers as it is logged)."""
        header, rows = bench.read_log(log)
        tag, digest = header["system"]["model"].split("@")
        inputs = {case["id"]: case["input"] for case in self.loaded["cases"]}
        replies = {(row["metadata"]["seed"], inputs[row["case_id"]]): row["metadata"]["reply"] for row in rows if "reply" in row["metadata"]}

        def usual(request, number):
            options, message = request["body"]["options"], request["body"]["messages"][-1]["content"]
            return {"body": chat_body(replies.get((options["seed"], message), "{}"))}
        return ModelTriage(tag, digest), FakeOllama(usual=usual, models={tag: digest + "0" * 52})

    def test_a_log_of_an_earlier_version_resumes_to_the_undisturbed_outputs(self):
        system, server = self.standing_in(HERE / "recorded" / f"{MODELS[0]}.jsonl")
        stopped = (HERE / "recorded" / f"{MODELS[0]}-stopped.jsonl").read_bytes()
        self.log.write_bytes(stopped)
        with server:
            counts = bench.run_bench(system, self.loaded, ["development"], 10, self.log)
        self.assertEqual((counts["already_logged"], counts["ran"], counts["not_run"]), (33, 57, 0))
        self.assertTrue(self.log.read_bytes().startswith(stopped))
        self.assertEqual(outputs_sha256(bench.to_recording(self.log, self.loaded)),
                         harness.read_json(HERE / "recorded" / "recordings.json")[f"{MODELS[0]}.jsonl"]["outputs_sha256"])
        self.assertEqual(called(report, self.log)[0], 0)

    def test_trials_of_a_log_of_an_earlier_version_are_taken_over_into_one_of_today(self):
        for stem in MODELS:
            old, new = HERE / "recorded" / f"{stem}.jsonl", self.folder / f"{stem}.jsonl"
            system, server = self.standing_in(old)
            with server:
                counts = bench.run_bench(system, self.loaded, ["development"], 11, new, sources=[old], task=triage_task)
            self.assertEqual((counts["already_logged"], counts["ran"]), (90, 9))
            self.assertEqual(bench.read_log(new)[0]["bench_version"], bench.BENCH_VERSION)
            before, after = (bench.to_recording(log, self.loaded)["responses"] for log in (old, new))
            self.assertEqual({case_id: responses[:10] for case_id, responses in after.items()}, before)
            self.assertEqual(called(report, new)[0], 0)

    def test_a_server_with_a_recorded_model_gives_its_first_nine_outputs_again(self):
        reasons = []
        for stem in MODELS:
            header, rows = bench.read_log(HERE / "recorded" / f"{stem}.jsonl")
            system = ModelTriage(*header["system"]["model"].split("@")).configured(timeout_s=30)
            log, version = self.folder / f"{stem}.jsonl", rows[0]["metadata"]["server_version"]
            try:
                system.check_digest()
                if system.server.version() != version:
                    raise SystemDown(f"the server's version is not {version}")
                counts = bench.run_bench(system, self.loaded, ["development"], 1, log, budget_s=60)
            except (SystemDown, RunError) as error:
                reasons.append(f"{stem}: {error}")
                continue
            recorded = {row["case_id"]: bench.response_part(row) for row in rows[:9]}
            self.assertEqual({row["case_id"]: bench.response_part(row) for row in bench.read_log(log)[1]},
                             {case_id: recorded[case_id] for case_id in list(recorded)[:counts["ran"]]})
        if len(reasons) == len(MODELS):
            self.skipTest("no server with a recorded model: " + "; ".join(reasons))


def readme_commands(language):
    """[(command, what the README shows of its output)] of the blocks in that language."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    found = []
    for block in re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if language == "sh":
            found += [(line, None) for line in block.splitlines()]
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            found.append((command, shown))
    return found


def times_masked(text):
    """The text with its measured times made equal: "median 0.1 ms" → "median T"."""
    return re.sub(r"\b(under )?\d+(\.\d+)? (ms|s)\b", "T", text)


OLD_PYTHONS = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.[6-9].*/bin/python3")
                     ) + sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.10.*/bin/python3"))


class PythonsAndPrograms(unittest.TestCase):
    def test_no_name_of_a_file_is_made_twice(self):
        for path in sorted(HERE.glob("*.py")):
            body = ast.parse(path.read_text(encoding="utf-8")).body
            made = [f"{kind.name}.{part.name}" for kind in body if isinstance(kind, ast.ClassDef)
                    for part in kind.body if isinstance(part, ast.FunctionDef)]
            for statement in body:
                made += [statement.name] if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) else []
                for target in statement.targets if isinstance(statement, ast.Assign) else ():
                    made += [part.id for part in ast.walk(target) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]
            self.assertEqual([name for name, times in Counter(made).items() if times > 1], [], path.name)

    def test_the_programs_keep_to_a_syntax_that_an_old_python_reads_as_far_as_its_refusal(self):
        for name in ("bench.py", "report.py", "harness.py"):
            ast.parse((HERE / name).read_text(encoding="utf-8"), feature_version=(3, 6))

    @unittest.skipUnless(OLD_PYTHONS, "no Python from 3.6 to 3.10 is here")
    def test_an_old_python_is_told_in_one_line_which_one_is_needed(self):
        for python in OLD_PYTHONS:
            version = python.parents[1].name
            for name in ("bench.py", "report.py", "harness.py"):
                done = subprocess.run([python, HERE / name], capture_output=True, encoding="utf-8", timeout=60, check=False)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", (
                    f"error: Python 3.11 or later is needed, this is {version}: run {HERE / name} with a newer one, such as python3.11\n")))

    def test_what_is_no_program_says_which_one_to_use(self):
        for name in ("triage_task.py", "model_triage.py"):
            done = script(name)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, rf"^error: {name} .*: python3 bench.py .*\n$")

    def test_every_program_says_its_version_by_what_its_code_is(self):
        told = {script(name, "--version").stdout for name in ("bench.py", "report.py", "harness.py")}
        self.assertEqual(len(told), 1)
        self.assertRegex(told.pop(), rf"^harness 1, bench 2, report 2, code [0-9a-f]{{12}}, Python {re.escape(sys.version.split()[0])}\n$")
        with mock.patch.object(harness, "own_file", lambda path: Path(path).read_bytes() + b"#"):
            self.assertNotEqual(harness.version(), script("bench.py", "--version").stdout.strip())

    def test_a_zip_archive_of_the_folder_runs_wherever_it_lies(self):
        command = re.search("`python3 (-m zipapp [^`]*)`", (HERE / "README.md").read_text(encoding="utf-8"))[1].split()
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "tool").mkdir()
            for name in ("bench.py", "report.py", "harness.py", "model_triage.py", "triage_task.py", "cases.json"):
                shutil.copy(HERE / name, folder / "tool")

            def run(*words, cwd=folder / "tool"):
                return subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, encoding="utf-8", timeout=60, check=False,
                                      env={**os.environ, "PYTHONIOENCODING": "utf-8"})
            for name in ("bench", "report"):
                done = run(*(word.replace("bench", name) for word in command))
                self.assertEqual((done.returncode, done.stderr), (0, ""))
            done = run("bench.pyz", "--trials", "2", cwd=folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(f"report  {harness.PYTHON} report.pyz runs/bayes.jsonl\n", done.stdout)
            self.assertEqual(run("report.pyz", "runs/bayes.jsonl", "--require", "all", cwd=folder).returncode, 1)
            self.assertEqual(bench.read_log(folder / "runs/bayes.jsonl")[0]["task"]["sha256"], harness.task_identity(triage_task)["sha256"])
            if can_link():
                (folder / "link").symlink_to(folder, target_is_directory=True)
                self.assertEqual(run(folder / "link" / "bench.pyz", "--version").stdout.strip(), harness.version())

    def test_a_guard_at_its_end_is_no_part_of_what_a_task_is(self):
        with tempfile.TemporaryDirectory() as folder:
            def identity(text):
                path = Path(folder) / "some.py"
                path.write_text(text)
                return harness.task_identity(SimpleNamespace(NAME="some", __file__=path))["sha256"]
            checks = "NAME = 1\n"
            self.assertEqual(identity(checks), identity(checks + '\n\nif __name__ == "__main__":\n    print(1)\n'))
            self.assertNotEqual(identity(checks), identity(checks + '\n\nif __name__ == "__main__":\n    print(1)\nNAME = 2\n'))


class TheReadme(InFolder):
    def copy_tool(self):
        """Put the tool into this folder, as a fresh clone has it."""
        for name in ("bench.py", "report.py", "harness.py", "model_triage.py", "triage_task.py", "cases.json", "test_bench.py"):
            shutil.copy2(HERE / name, self.folder)
        for name in ("recorded", "runs"):
            shutil.copytree(HERE / name, self.folder / name, ignore=shutil.ignore_patterns("*.jsonl") if name == "runs" else None)
        if (HERE / "__pycache__").exists():     # what is compiled already holds for a copy of the same time
            shutil.copytree(HERE / "__pycache__", self.folder / "__pycache__")

    def paste_tasks(self):
        """Save the README's tasks under their names, as a reader does; returns the names."""
        blocks = re.findall("^```json\n(.*?)^```$", (HERE / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        tasks = [block for block in blocks if json.loads(block).keys() >= {"name", "cases"}]
        return [self.write(f"{json.loads(block)['name']}.json", block).name for block in tasks]

    def test_a_reader_with_a_prompt_of_their_own_gets_there_by_what_is_pasted(self):
        self.copy_tool()
        lines = (HERE / "README.md").read_text(encoding="utf-8").splitlines()
        self.assertEqual([line for line in lines if line.startswith("## ")][0], "## Your own task")
        replies = {"receipt": {"shop": "bakery klein", "total": 1.8}, "capital": "Hm.\nAnswer: A\nNo.\nAnswer: B",
                   "parcel": "We are sorry. Your parcel comes tomorrow."}

        def usual(request, number):
            asked = request["body"]["messages"][-1]["content"]
            reply = next((reply for word, reply in replies.items() if word in asked), "It is a probe.")
            return {"body": chat_body(reply if isinstance(reply, str) else json.dumps(reply))}
        tasks = self.paste_tasks()
        self.assertEqual(tasks[:3], ["receipts.json", "quiz.json", "apology.json"])
        commands = [command for command, _ in readme_commands("sh") if "receipts.json" in command]
        commands += [f"python3 bench.py {task} --model llama3.2:3b --trials 2" for task in tasks[1:3]]
        with FakeOllama(usual=usual, models={"llama3.2:3b": "ab" * 32}):
            ran = [script(*shlex.split(command)[1:], cwd=self.folder) for command in commands]
            checked = [script("bench.py", task, "--check", cwd=self.folder) for task in tasks[:3]]
        self.assertEqual([(done.returncode, done.stderr) for done in ran + checked], [(0, "")] * 7)
        self.assertIn("tried 2: 1 passed, 1 failed; nothing was logged", ran[0].stdout)
        self.assertRegex(ran[1].stdout, r"bakery .* 20/20\ntorn .* 0/20  never\n")
        self.assertEqual([bool(re.search(" 2/2\n", done.stdout)) for done in ran[2:]], [True, True])
        told = script(*model_triage.command_words(re.search(f"^report  {harness.PYTHON} (.*)$", ran[1].stdout, re.MULTILINE)[1]), cwd=self.folder)
        self.assertIn("2 cases x 20 trials: 20 passed, 20 failed", told.stdout)

    @posix_shell
    def test_every_command_shows_the_output_that_it_has(self):
        self.copy_tool()
        commands = readme_commands("console")
        self.assertGreater(len(commands), 8)
        for command, shown in commands:
            with self.subTest(command):
                pipeline = command.replace("python3", f"{shlex.quote(sys.executable)} -S")
                done = subprocess.run(pipeline, shell=True, cwd=self.folder, capture_output=True, encoding="utf-8", timeout=60,
                                      stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONIOENCODING": "utf-8"}, check=False)
                self.assertEqual(times_masked(done.stdout + done.stderr), times_masked(shown))

    def test_the_measuring_lines_run(self):
        self.copy_tool()
        blocks = re.findall("^```python\n(.*?)^```$", (HERE / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        for lines, told in ((blocks[0].replace("(1, 10, 100, 1000)", "(2,)"), r"^2000 rows: \d\.\d\d ms a trial, resume \d\.\d s, report \d\.\d s, \d+ MB\n$"),
                            (blocks[1], r"^\d+\.\d ms a call\n$"))[sys.platform != "linux":]:     # elsewhere memory is counted otherwise
            done = subprocess.run([sys.executable, "-S", "-"], input=lines, cwd=self.folder, capture_output=True, encoding="utf-8", timeout=60, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertRegex(done.stdout, told)
        self.assertEqual(len(bench.read_log(self.folder / "runs" / "my-calls.jsonl")[1]), 900)

    def test_the_first_command_and_its_output_stand_on_the_first_screen(self):
        lines = (HERE / "README.md").read_text(encoding="utf-8").splitlines()
        self.assertIn("$ python3 bench.py", lines[:12])
        self.assertLess(lines.index("```", lines.index("```console") + 1), 40)

    def test_every_other_command_is_one_that_the_tool_takes(self):
        for command, _ in readme_commands("sh"):
            with self.subTest(command):
                words = shlex.split(command.split(";")[-1].split(">")[0].replace("time ", ""))
                if words[0] != "python3" or words[1] == "-m":
                    self.assertEqual(command, "python3 -m unittest -v test_bench.py")
                    continue
                {"bench.py": bench, "report.py": report}[words[1]].parse_args(words[2:])

    def test_the_workflow_gates_and_keeps_files_that_its_command_writes(self):
        text = (HERE / "README.md").read_text(encoding="utf-8")
        block = next(block for block in re.findall("^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) if "pull_request" in block)
        command = shlex.split(re.search(r"run: >-\n(( {10}.*\n)+)", block)[1])
        self.assertEqual(command[:2], ["python3", "report.py"])
        (self.folder / "logs").mkdir()
        for name, stem in (("new", "smollm2-135m-instruct-q4_1"), ("old", "bayes")):
            shutil.copy(HERE / "recorded" / f"{stem}.jsonl", self.folder / "logs" / f"{name}.jsonl")
        status, out, err = self.in_folder(report, *command[2:])
        self.assertEqual((status, err), (1, ""))
        self.assertRegex(out, r"(?m)^::error title=--no-worse-than bayes ")
        kept = [re.search("cat (.*?) ", block)[1], *re.search(r"path: \|\n(( {12}.*\n)+)", block)[1].split()]
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"logs", *kept})
        self.assertEqual(block.count("if: always()"), 2)

    def test_every_option_is_in_the_readme_or_the_help_and_no_other(self):
        text = (HERE / "README.md").read_text(encoding="utf-8")
        known = set()
        for name in ("bench.py", "report.py"):
            known |= set(re.findall(r"--[a-z][a-z-]+", script(name, "--help").stdout))
        known |= {"--recording", "--array"}     # of harness.py, of Slurm
        self.assertEqual(set(re.findall(r"--[a-z][a-z-]+", text)) - known, set())
        self.assertEqual(known - set(re.findall(r"--[a-z][a-z-]+", text)) - {"--help", "--version", "--task", "--cases", "--color", "--case", "--failures", "--regrade"}, set())

    def test_the_project_is_a_flat_set_of_files(self):
        if not (HERE / ".git").exists() or not shutil.which("git"):
            self.skipTest("not a checkout, or no git")
        done = subprocess.run(["git", "ls-files"], cwd=HERE, capture_output=True, encoding="utf-8", check=False)
        if done.returncode:
            self.skipTest(f"git does not list the files: {done.stderr.strip()}")
        top = {Path(name).parts[0] for name in done.stdout.splitlines()}
        self.assertEqual({name for name in top if not name.startswith(".")}, {
            "bench.py", "report.py", "harness.py", "model_triage.py", "triage_task.py", "cases.json", "recorded", "runs",
            "test_bench.py", "README.md"})

if __name__ == "__main__":
    unittest.main()
