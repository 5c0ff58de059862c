"""Run every case k times against one system and log each trial as it ends.

    python3 bench.py                                  the demonstration
    python3 bench.py mine.json --model llama3.2:3b    a task of your own
    python3 bench.py mine.json --model llama3.2:3b --trials 20

The log (JSON Lines: the plan, then a line for each finished trial) is the
only state. Stopped, crashed or killed, the same command resumes it and never
repeats a logged trial. The order is trial-major: each case once, then each
case a second time, and so on. Afterwards: python3 report.py LOG
"""

import os
import signal
import sys

# What ends a run in good order. A closed terminal is SIGHUP, on Windows SIGBREAK, as Ctrl-Break is.
ENDING = {getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)}

if __name__ == "__main__":
    # The other scripts lie beside this one, which Python does not look at when told to be safe (-P, -I).
    sys.path.append(os.path.dirname(os.path.realpath(__file__)))
    # Until main() takes over, an interrupt during the imports below ends quietly: nothing has been written.
    for _number in ENDING:
        if signal.getsignal(_number) != signal.SIG_IGN:
            signal.signal(_number, lambda number, frame: os._exit(128 + number))

import harness      # the first import, since it refuses a Python that is too old for the others

import argparse
import codecs
import contextlib
import difflib
import errno
import hashlib
import json
import math
import platform
import queue
import random
import re
import stat
import statistics
import threading
import time
import unicodedata
import weakref
from array import array
from collections import Counter, deque
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from itertools import chain, compress
from pathlib import Path

from harness import RunError, SystemDown, as_text, call_hook, printable

try:
    import fcntl
except ImportError:     # Windows
    fcntl = None
    import msvcrt

# The contents, in the order in which data flows:
#   Plan      a plan and the header that holds it; in what two plans differ
#   Read      what is sound in a log; lines, ties and the rows of a log; what a row says; logs of one plan; parts of a log in
#             processes of their own
#   Grade     the task and the cases of a log; logs as a recording; rows while they are read; what two runs are made of
#   Write     locks; a log; rows of other logs
#   Run       workers and what is said meanwhile; one invocation; a run from its log on
#   Show      the terminal; words and amounts; the grid; the headline; while trials run
#   Command   names of logs, and commands to give next; values of options; options; what does not go together; the systems;
#             some of the cases; looking before a run; what there is to measure; logged trials again; a run and its result

BENCH_VERSION = "2"
READABLE = ("1", "2")       # logs of the first version hold neither their cases nor the command that began them
# Of the header, what makes a log's plan; the rest describes how the first run came about.
COMPARED = ("bench_version", "harness_version", "case_set_sha256", "system", "splits", "trials")
SPLITS = ("development",)
TRIAGE = "inbox-triage"     # the tool's own task, whose logs need not be told apart from those of others
HEADER_KINDS = ((dict, "an object", ("case_inputs", "environment", "task", "case_set", "asked", "files")),
                (list, "a list", ("from", "cases", "command")), (str, "text", ("label",)),
                (int, "a whole number", ("taken_over", "run_again")))
HEADER_START = harness.IRREPLACEABLE + b': "'
ROW_START = ord("{")
ROW = json.JSONEncoder(allow_nan=False)     # made once: what json.dumps makes for each call costs as much as a short row
PLAN_START = b'{"plan": '   # of a line from which on more trials are planned
# A second process takes 20 ms to begin and to report; so many bytes take ten times that.
PART_BYTES = 8 << 20
MOST_PARTS = 4
# Without a width though no mark: joiners, the vowels within a Hangul syllable, an emoji's skin tones.
WIDTHLESS = re.compile("[\u200c\u200d\u1160-\u11ff\U0001f3fb-\U0001f3ff]")
BLANK = b" \t\r\n\0"        # a power cut leaves NUL bytes where a line was to be
TIE = re.compile(rb', "tie": "([0-9a-f]{16})"}\Z')     # how a line of a log ends
TIE_LENGTH = len(', "tie": "0123456789abcdef"}')
# A night with a broken server must not fill the log with errors.
UNANSWERED_IN_A_ROW = 5
# So many model calls without one that could be graded, and most of them for one reason, are a wrong setting.
HOPELESS_CALLS = 5
WAIT_PAUSE_S = 1.0
CLOSE_S = 1.0
MOST_WORKERS = 512
ANY_MODEL = "model_triage:any:latest"   # stands for a model that is not named yet
MOST_LABEL = 40
MOST_NAME = 120             # letters of a default log's name: file systems take 255 bytes, Windows 260 letters of a whole path
# Each numbers the tasks of a job: Slurm's array, a Kubernetes Indexed Job, GNU parallel.
SCHEDULERS = ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "PARALLEL_SEQ")
SHORT = {"-m": "--model", "-t": "--trials", "-n": "--trials", "-k": "--trials", "-o": "--option", "-p": "--prompt"}
MOST_ROWS = 40              # of a grid in the terminal
LOCK_BYTE = 1 << 62         # Windows locks a byte, far past the end of any log
VERDICT_GLYPHS = {"pass": "✓", "fail": "✗", "incomplete": "!", "not run": "·"}
ASCII_GLYPHS = {"pass": "+", "fail": "-", "incomplete": "!", "not run": "."}
SHADES = (174, 180, 186, 150, 114)      # of the 256 colours, from red to green, all light enough for black letters
COLOURS = {"pass": "32", "fail": "31", "incomplete": "33", "not run": "2"}
PAINT = re.compile("\x1b\\[[0-9;]*m")
VERDICT_WORDS = {"pass": "passed", "fail": "failed", "incomplete": "incomplete", "not run": "not run"}


class BenchError(RunError):
    """A log that cannot be read, written or resumed; the message names it and the mend."""


class PlanDiffers(BenchError):
    """A log that was written for another plan; found is [(key, value in the log, value now)] of what differs, lines
    the difference of what is asked."""

    def __init__(self, message, found, lines):
        super().__init__(message)
        self.found, self.lines = found, lines


class Hopeless(BenchError):
    """No model call of a run could be graded, and the run was to stop then."""


class Interrupted(BaseException):
    """A signal ended the run."""

    def __init__(self, signum):
        super().__init__(signum)
        self.signum = signum


# Plan: a plan and the header that holds it

def schedule(cases: list, trials: int) -> list:
    """(case, trial) of every planned trial in trial-major order."""
    return [(case, trial) for trial in range(trials) for case in cases]


def rounds_of(trials: int, shard=None) -> range:
    """The trials, by number, of each case that a plan or a part of it runs: of part 2 of 4 trials 1, 5, 9, …"""
    return range(shard["part"] - 1, trials, shard["of"]) if shard else range(trials)


def input_hash(case) -> str:
    """16 hex digits that stand for what a case gives a system, by which a later plan knows the case again.

    A test is part of it: what it came to is in the output, and is not found out again."""
    given = [case["input"], *({key: case[key]} for key in ("files", "hidden", "test") if key in case)]
    return harness.sha256(harness.canonical(given if given[1:] else case["input"]))[:16]


def utc_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def identity_in(header):
    """{name, sha256} of the task of a header, or None."""
    entry = header.get("task")
    return {key: entry[key] for key in ("name", "sha256") if key in entry} if entry is not None else None


def header_for(system, case_set: dict, splits, trials: int, budget_s=None, hardware=None, task=None,
               told=None) -> dict:
    """A log's first line: the compared plan, then what describes the first run, which told adds to: {key: value}."""
    cases = harness.plan(case_set, splits, trials)
    environment = {"python": platform.python_version(), "platform": platform.platform(), "hardware": hardware}
    data = isinstance(task, harness.DataTask)       # what grades is kept where it is data, else the module is named
    grades = {"data": task.definition} if data else {"module": getattr(task, "__name__", None)}
    header = {"bench_version": BENCH_VERSION, "harness_version": harness.HARNESS_VERSION,
              "case_set_sha256": case_set["sha256"], "system": harness.system_identity(system),
              "splits": list(splits), "trials": trials,
              "case_inputs": {case["id"]: input_hash(case) for case in cases},
              "started_at": utc_now(), "budget_s": budget_s, "environment": environment,
              **({"task": {**harness.task_identity(task), **grades}} if task else {}),
              "cases": cases, "case_set": {"name": case_set["name"], "sha256": case_set["sha256"]}}
    if harness.has(system, "asked"):
        header["asked"] = harness.exact(system.asked, "prompt")
    return {**header, **(told or {})}


def part_of(case_set, cases) -> dict:
    """Some cases of a case set as a case set of their own."""
    return {"name": case_set["name"], "sha256": harness.sha256(harness.canonical(cases)), "cases": cases}


# Plan: in what two plans differ

def shown(value) -> str:
    """A value of a header, short enough for one line of an error."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"


def differences(logged, now, prefix=""):
    """[(key, value in the log, value now)] of what differs, down to the keys of a nested object."""
    found = []
    for key in [*logged, *(key for key in now if key not in logged)]:
        old, new = logged.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += differences(old, new, f"{prefix}{key}.")
        elif old != new:
            found.append((prefix + key, old, new))
    return found


def in_words(found, there="in the log") -> str:
    """Differences in one line: "model is "a" in the log, "b" now; …"."""
    told = [(key, *harness.excerpts(old, new)) for key, old, new in found]
    return "; ".join(f"{key} is {was} {there}, {now} now" for key, was, now in told)


def asked_lines(header, whole) -> list:
    """The lines of what a header says is asked: whole messages, or as the older logs have it the prompt alone."""
    if not whole:
        prompt = header["system"].get("prompt")
        return prompt.splitlines() if isinstance(prompt, str) and not prompt.startswith("sha256:") else []
    messages = header["asked"]["messages"]
    return [f"{message.get('role')}: {line}" for message in (messages if isinstance(messages, list) else ())
            if isinstance(message, dict) for line in str(message.get("content")).splitlines()]


def prompt_difference(logged, now, names=("in the log", "now")) -> list:
    """The lines in which what a log asked differs from what is asked now, with one line around them; at most 40."""
    whole = all("messages" in header.get("asked", ()) for header in (logged, now))
    old, new = (asked_lines(header, whole) for header in (logged, now))
    lines = list(difflib.unified_diff(old, new, *names, lineterm="", n=1)) if old and new else []
    rest = [f"and {len(lines) - MOST_ROWS} more lines"] if len(lines) > MOST_ROWS else []
    return [printable(line) for line in lines[:MOST_ROWS]] + rest


def cases_that_differ(logged, now) -> list:
    """A line for each case that a log holds otherwise than the case set of today, or that only one of them holds; at most 40."""
    old, new = ({case["id"]: case for case in header.get("cases", ())} for header in (logged, now))
    lines = []
    for name in dict.fromkeys([*old, *new] if old and new else ()):
        a, b = old.get(name), new.get(name)
        if a is None or b is None:
            lines.append(f"case {name}: {'not in the log' if a is None else 'only in the log'}")
        elif a != b:
            keys = [key for key in dict.fromkeys([*a, *b]) if a.get(key) != b.get(key)]
            lines.append(f"case {name}: another {' and another '.join(keys)} than in the log")
    rest = [f"and {len(lines) - MOST_ROWS} more cases"] if len(lines) > MOST_ROWS else []
    return [printable(line) for line in lines[:MOST_ROWS]] + rest


def spelt_as(logged, now) -> dict:
    """A logged system, in today's spelling where only the case of its names differs: its digest says that it is the same."""
    keys = ("name", "model")
    same = all(isinstance(logged.get(key), str) and logged[key].lower() == now[key] for key in keys)
    return {**logged, **{key: now[key] for key in keys}} if same and re.search("@[0-9a-f]{12}$", now["model"]) else logged


def check_plan(path, logged, now):
    """PlanDiffers when a log's header is of another plan, naming each key with both values."""
    logged = {**logged, "system": spelt_as(logged["system"], now["system"])}
    keys = [key for key in (*COMPARED, "shard") if key != "bench_version" or logged[key] not in READABLE]
    found = differences({key: logged.get(key) for key in keys}, {key: now.get(key) for key in keys})
    if found:
        raise PlanDiffers(f"{path} was written for another plan: {in_words(found)}; give the log's own plan, or another --log",
                          found, prompt_difference(logged, now) + cases_that_differ(logged, now))


# Read: what is sound in a log

def is_subset(value) -> bool:
    """Whether a value says, as a header does, which of how many cases were chosen: {words: [text], of: number}."""
    words = value.get("words") if isinstance(value, dict) else None
    return isinstance(words, list) and all(isinstance(word, str) for word in words) and harness.is_trial_count(value.get("of"))


def is_shard(value) -> bool:
    """Whether a value says, as a header does, which part of a plan a log is: {part, of}."""
    part, of = (value.get(key) for key in ("part", "of")) if isinstance(value, dict) else (None, None)
    return harness.is_trial_count(part) and harness.is_trial_count(of) and part <= of


def header_problem(header):
    """What is wrong with a log's header, or None."""
    if not isinstance(header, dict) or any(key not in header for key in COMPARED):
        return "it is not the header of a log of bench.py"
    if not harness.is_trial_count(header["trials"]):
        return f"trials is not a whole number from 1 to {harness.MAX_TRIALS}"
    if not isinstance(header["splits"], list) or not isinstance(header["system"], dict):
        return "splits or system is of the wrong type"
    for kind, told, keys in HEADER_KINDS:
        for key in keys:
            if not isinstance(header.get(key, kind()), kind) or kind is int and header.get(key, 0) < 0:
                return f"{key} is not {told}"
    if not all(isinstance(case, dict) and "input" in case for case in header.get("cases", ())) or not all(
            isinstance(case.get(key), str) for case in header.get("cases", ()) for key in ("id", "class", "split")):
        return "one of the cases is not a case"
    if ("cases" in header) != isinstance(header.get("case_set", {}).get("name"), str):
        return "cases and case_set's name do not come together"
    if "subset" in header and not is_subset(header["subset"]):
        return "subset does not say which cases it is of"
    if "shard" in header and not is_shard(header["shard"]):
        return "shard does not say which part of the plan it is"
    if not (header.get("sync") is None or harness.is_trial_count(header["sync"])):
        return "sync is not a whole number from 1 up"
    return None


def row_problem(row, inputs, rounds):
    """What is wrong with one row of a log whose header tells its cases (or None) and the numbers of its trials, or None."""
    if not isinstance(row, dict) or not isinstance(row.get("case_id"), str):
        return "it is not the row of a trial"
    case_id, trial = row["case_id"], row.get("trial")
    if inputs is not None and case_id not in inputs:
        return f"case {shown(case_id)} is not of the plan"
    if type(trial) is not int or trial not in rounds:
        return f"trial {shown(trial)} is not of the plan"
    problem = harness.response_problem(row)
    if problem:
        return problem
    if not isinstance(row.get("metadata"), dict) or row["latency_s"] is None:
        return "metadata or latency_s is missing"
    if "error" in row and "NotRun" in row["error"]["types"]:
        return "a logged trial may not claim to be NotRun"
    return None


# Read: lines, ties and the rows of a log

def parse_line(line: bytes):
    """The value of one line; ValueError when it is no JSON."""
    return harness.parse_json(line.decode("utf-8"))


def plan_step(line: bytes):
    """The {trials, at} of a line that extends a plan, or None."""
    try:
        step = parse_line(line)["plan"]
        return {"trials": step["trials"], "at": step["at"]} if harness.is_trial_count(step["trials"]) else None
    except (ValueError, TypeError, KeyError):
        return None


def holds(file, mark) -> bool:
    """Whether some bytes stand in a file, which is many times quicker to see than line by line."""
    file.seek(0)
    end = b""
    for part in iter(lambda: file.read(1 << 20), b""):
        if mark in end + part:
            return True
        end = part[-len(mark):]
    return False


def is_torn(line: bytes) -> bool:
    """Whether a line that is no JSON can be the beginning of some: a whole value with more behind it cannot."""
    try:
        json.JSONDecoder().raw_decode(line.decode("utf-8", "ignore"))
    except (ValueError, RecursionError):
        return True
    return False


def parse_header(line, last, path):
    """The header that the first line holds, or None where it is the last too and the torn beginning of one of ours."""
    try:
        header = parse_line(line)
        problem = header_problem(header)
    except ValueError as error:
        begun = line.startswith(HEADER_START) or HEADER_START.startswith(line)
        if last and begun and is_torn(line):
            return None
        problem = f"it is not the header of a log of bench.py ({error})"
    if problem:
        raise BenchError(f"{path}: line 1: {problem}; the file is left as it was: give another --log")
    return header


def tie_of(previous: str, line: bytes) -> str:
    """16 hex digits that tie a line, its own tie left out, to the one before, whose tie is previous; "" for none."""
    return hashlib.sha256(previous.encode() + line).hexdigest()[:16]


def tie_before(file, start):
    """The tie of the line that ends where a part of a log's rows starts; None where that line has none."""
    file.seek(0)
    header = file.readline()
    if file.tell() == start:
        return tie_of("", header.removeprefix(codecs.BOM_UTF8).rstrip())
    file.seek(start - min(start, TIE_LENGTH + 2))
    found = TIE.search(file.read(TIE_LENGTH + 2).rstrip())
    return found and found[1].decode()


class LogReader:
    """A log that is read once, line by line, without keeping it: its header, then its rows.

    header is None where a run has still to begin. Once all rows are read, kept says how many bytes are good, unended
    whether the last good line lacks its newline, torn how many bytes of a torn last line follow. While they are read,
    offset says where in the file the present row begins, number its line, and tie the tie of the last good line; loose
    lists the lines that are not tied to the one before, untied those without any tie, tied counts the others."""

    def __init__(self, file, path, damaged=None, header=None, start=0, stop=math.inf):
        """With a header only the rows between two places in the file are read, with their lines counted from there.

        Nothing is read that a running writer appends meanwhile: a torn row would be joined with its own end."""
        stop = min(stop, file.seek(0, os.SEEK_END))
        self.path, self.damaged, self.number, self.header = path, damaged, 1, header
        self.offset = self.kept = self.torn = 0
        self.unended, self.tail = False, b""
        self.places = {}        # {case_id: the line of each trial, 0 for none}
        self.tied, self.loose, self.untied = 0, [], []
        self.tie = "" if header is None else tie_before(file, start)
        self.lines = self._told_apart(file, start, stop)
        if header is None:
            for offset, line, last in self.lines:
                self.header = parse_header(line, last, path)
                if self.header is None:
                    self._tear(0, offset + len(line))
                else:
                    self.tie = tie_of("", line.rstrip())
                    self._extend(file, stop)
                break

    def _extend(self, file, stop):
        """Put into the header how many trials are planned by now, and extended, how that came about."""
        place, trials, steps = file.tell(), self.header["trials"], []
        if holds(file, b"\n" + PLAN_START):
            file.seek(0)
            for number, line in enumerate(file):
                line = line[:max(stop, 0)]
                stop -= len(line)
                step = plan_step(line.rstrip(BLANK)) if line.startswith(PLAN_START) else None
                if step and step["trials"] > trials:
                    trials = step["trials"]
                    steps.append({"trials": trials, "after": number - 1 - len(steps), "at": step["at"]})
        self.header = {**self.header, "trials": trials, "extended": steps}
        if not steps:
            del self.header["extended"]
        file.seek(place)

    def _told_apart(self, file, offset, stop):
        """(offset, line, whether only blank lines follow) of each line; the blank ones at the end become the tail."""
        file.seek(offset)
        if offset == 0 and file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8:
            offset = len(codecs.BOM_UTF8)
        else:
            file.seek(offset)
        held, ahead = [], offset
        for line in file:
            line = line[:max(stop - ahead, 0)]
            if held and (line[0] == ROW_START or line.strip(BLANK)):
                for earlier in held:
                    yield offset, earlier[:-1], False
                    offset += len(earlier)
                held.clear()
            held.append(line)
            ahead += len(line)
            if ahead >= stop:
                break
        self.tail = b"".join(held)
        last = self.tail.rstrip(BLANK)
        if not last:
            self.torn = offset + len(self.tail.strip(b" \t\r\n"))
            return
        self.tail = self.tail[len(last):]
        ending = re.match(rb"\r?\n", self.tail)
        self.kept = offset + len(last) + (ending.end() if ending else 0)
        self.unended, self.torn = not ending, len(self.tail[ending.end() if ending else 0:].strip(b" \t\r\n"))
        yield offset, last, True

    def _tear(self, kept, end):
        """Note that the last line, which ends before the tail, is not whole."""
        self.kept, self.unended, self.torn = kept, False, end - kept + len(self.tail)

    def _stands_twice(self, row):
        """What is wrong with a row whose trial an earlier line holds, or None."""
        lines = self.places.get(row["case_id"])
        if lines is None:
            lines = self.places[row["case_id"]] = array("I", [0]) * self.header["trials"]
        first = lines[row["trial"]]
        if first:
            return f"trial {row['trial']} of case {shown(row['case_id'])} is logged already in line {first}"
        lines[row["trial"]] = self.number
        return None

    def has_ties(self) -> bool:
        """Whether the lines of the log are tied: those of the first version are not."""
        return self.header is None or self.header["bench_version"] != "1"

    def _follow(self, line) -> None:
        """Note whether a line is tied to the one before it, which is unknown where a part of a log begins untied."""
        line = line.rstrip()
        found = TIE.search(line, max(len(line) - TIE_LENGTH, 0))
        tie = tie_of(self.tie or "", line[:-TIE_LENGTH] + b"}" if found else line)
        if found is None:
            self.untied.append(self.number)
        else:
            self.tied += 1
            if self.tie is not None and tie != found[1].decode():
                self.loose.append(self.number)
            tie = found[1].decode()     # the next line is seen apart from this one's fault
        self.tie = tie

    def tie_faults(self) -> list:
        """What the ties of the lines read say against the log, one text each."""
        if self.untied and not self.tied:
            return ["no line has a tie, as those of this version have: something else wrote or changed the log"]
        return [f"line {number} is not tied to the line before it: one of the two was changed, or a line was removed, "
                "added or moved there" for number in self.loose] + [
                f"line {number} has no tie, as the others have: something else wrote or changed it"
                for number in self.untied]

    def rows(self):
        """Each row in file order. Damage is a BenchError, or goes to the list damaged where one is given."""
        inputs, rounds = self.header.get("case_inputs"), rounds_of(self.header["trials"], self.header.get("shard"))
        planned = [{"trials": step["trials"], "at": step["at"]} for step in self.header.get("extended", ())]
        has_ties = self.has_ties()
        for self.offset, line, last in self.lines:
            self.number += 1
            try:
                row = parse_line(line)
                if has_ties:
                    self._follow(line)
                if line.startswith(PLAN_START) and plan_step(line) in planned:
                    continue
                problem = row_problem(row, inputs, rounds)
            except ValueError as error:
                if last and is_torn(line):
                    self._tear(self.offset, self.offset + len(line))
                    return
                self.tie = None     # what the next line is to be tied to cannot be known
                problem = f"not JSON: {error}"
            fault = problem or self._stands_twice(row)
            if fault and self.damaged is None:
                raise BenchError(f"{self.path}: line {self.number}: {fault}; the file is left as it was: "
                                 f"--from {harness.in_shell(harness.as_word(self.path))} --log NEW takes over its good rows")
            if fault:
                self.damaged.append((self.number, fault))
            if not problem:
                row.pop("tie", None)        # which says nothing of the trial
                yield row


def open_log(path):
    """A log opened for reading; BenchError when it cannot be read, which is done more than once."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
            raise BenchError(f"{path}: this is a pipe or a device, which cannot be read twice: put it into a file first")
        return open(path, "rb")
    except OSError as error:
        raise BenchError(f"{path}: the log cannot be read: {error.strerror}") from None


def reader_of(file, path) -> LogReader:
    """The reader of a log that holds a run; BenchError for one that has still to begin."""
    reader = LogReader(file, path)
    if reader.header is None:
        raise BenchError(f"{path}: the log holds no run yet: run bench.py first")
    return reader


def read_log(path) -> tuple:
    """(header, rows in file order) of a log; a torn last line is left out. It may be one that is being written."""
    with open_log(path) as file:
        reader = reader_of(file, path)
        return reader.header, list(reader.rows())


def header_of(path) -> dict:
    """The header of a log; BenchError for one that has still to begin."""
    with open_log(path) as file:
        return reader_of(file, path).header


def planned_rows(reader, cases):
    """The rows of a log; BenchError for one of a case that is not planned, which a header edited by hand may hide."""
    planned = {case["id"] for case in cases}
    for row in reader.rows():
        if row["case_id"] not in planned:
            raise BenchError(f"{reader.path}: line {reader.number}: case {shown(row['case_id'])} is not of the plan; "
                             "the file is left as it was")
        yield row


def first_line(path) -> bytes:
    """The first line of a file."""
    with open_log(path) as file:
        return file.readline()


def is_log(path) -> bool:
    """Whether a file is a log of bench.py, which its first line tells; an empty or torn one counts as one."""
    line = first_line(path)
    try:
        header = harness.parse_json(line.decode("utf-8-sig"))
    except ValueError:
        return not line.strip() or line.startswith(HEADER_START)
    return isinstance(header, dict) and "bench_version" in header


def warn_of_torn(path, reader, warn) -> None:
    if reader.torn:
        warn(f"{path}: a torn last line of {reader.torn} bytes is dropped")


def warn_of_ties(path, faults, warn) -> None:
    """Warn of a log with lines that are not tied to the ones before."""
    if faults:
        more = f" ({len(faults)} such lines)" if len(faults) > 1 else ""
        warn(f"{path}: {faults[0]}{more}; its trials are counted as they stand, report.py --verify tells all")


# Read: what a row says

def response_part(response) -> dict:
    """The output of a response, or its error."""
    return {"output": response["output"]} if "output" in response else {"error": response["error"]}


def response_of(row) -> dict:
    """The response that a row of a log holds."""
    return {**response_part(row), "metadata": row["metadata"], "latency_s": row["latency_s"]}


def result_of(row) -> str:
    """What a trial came to, times left out, as text: true and 1 are not the same."""
    return harness.canonical(response_part(row))


def answered(row) -> bool:
    """Whether a trial has a reply of the system: an output, a refusal, or one that could not be used.

    An error that is a ValueError (Rejection and JSONDecodeError are) is about a reply or an input."""
    return "output" in row or "reply" in row.get("metadata", {}) or "ValueError" in row["error"]["types"]


def is_silent(row) -> bool:
    """Whether a trial reached for a reply and got none; what the input alone explains does not count."""
    return not answered(row) and "ContextOverflow" not in row["error"]["types"]


def is_refusal(row) -> bool:
    """Whether the system refused the input, which costs no call of a model."""
    return "error" in row and "Rejection" in row["error"]["types"]


# Read: logs of one plan

def provenance_of(header) -> dict:
    """What a recording tells of its log beside the plan: task, environment, what was taken over or run again, and
    of newer logs the command that began it, its label, which cases it is of and when it began."""
    told = {key: header[key] for key in ("task", "environment", "from", "run_again", "extended") if key in header}
    if "cases" not in header:
        return told
    return {**told, **({"task": identity_in(header)} if "task" in header else {}),
            **{key: header[key] for key in ("bench_version", "asked", "command", "label", "subset", "shard", "started_at", "sync")
               if key in header}}


def in_order(paths) -> list:
    """[(path, header)] of logs of one plan, in an order that is not the given one's; BenchError for another plan."""
    found = [(path, header_of(path)) for path in paths]
    if len(found) == 1:
        return found
    found.sort(key=lambda one: (one[1].get("shard", {}).get("part", 0), str(one[1].get("started_at")), str(one[0])))
    plans = [{**{key: header[key] for key in COMPARED[1:]}, "task": identity_in(header)} for _, header in found]
    for (path, _), plan in zip(found[1:], plans[1:]):
        for key, old, new in differences(plans[0], plan)[:1]:
            raise BenchError("{} is of another plan than {}, and a report or recording is of one: {} is {} there, {} "
                             "here".format(path, found[0][0], key, *harness.excerpts(old, new)))
    return found


def in_groups(paths) -> list:
    """The paths of logs and run records in lists, one for each system: logs of parts of a plan together, others alone."""
    groups = {}
    for number, path in enumerate(paths):
        header = header_of(path) if b'"shard"' in first_line(path) and is_log(path) else {}
        key = (header["system"].get("name"), header.get("label")) if "shard" in header else number
        groups.setdefault(str(key), []).append(path)
    return list(groups.values())


def merged_provenance(headers) -> dict:
    """What a recording tells of several logs of one plan: what is true of all, and shards, what is not, log by log."""
    told = [provenance_of(header) for header in headers]
    if len(told) == 1:
        return told[0]
    common = {key: value for key, value in told[0].items() if key != "command" and all(one.get(key) == value for one in told)}
    if any("from" in one for one in told):
        sources = {json.dumps(source) for one in told for source in one.get("from", ())}
        common["from"] = list(map(json.loads, sorted(sources)))
        common["run_again"] = sum(one.get("run_again", 0) for one in told)
    apart = [key for key in ("started_at", "environment", "extended") if key not in common]
    return {**common, "shards": [{**one.get("shard", {}), "trials": 0, **{key: one[key] for key in apart if key in one}}
                                 for one in told]}


def check_once(row, path, other, other_path, what="merged") -> None:
    """BenchError where two logs have different results for a trial, and so cannot be merged, or what is to be done."""
    if result_of(row) != result_of(other):
        raise BenchError(f"trial {row['trial']} of case {shown(row['case_id'])} has one result in {other_path} and another "
                         f"in {path}: a trial counts once, so these cannot be {what}")


# Read: parts of a log in processes of their own

def parts_of(file) -> list:
    """[(start, stop)] of the parts of a log's rows, each for a process of its own; one part where more do not pay."""
    file.seek(0)
    file.readline()
    begin, size = file.tell(), file.seek(0, os.SEEK_END)
    bounds = [begin]
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1      # elsewhere no process is copied safely
    parts = min(cores, MOST_PARTS, size // PART_BYTES)
    for part in range(1, parts):
        file.seek(begin + (size - begin) * part // parts)
        file.readline()
        bounds.append(file.tell())
    return [(start, stop) for start, stop in zip(bounds, [*bounds[1:], size]) if start < stop]


def answer(ours, theirs, function, arguments) -> None:
    """Send what a function returns, or nothing where it raises, from a process that its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ours.close()        # else nobody would notice that the parent is gone
    with contextlib.suppress(Exception):        # a single process meets it again, and tells it
        theirs.send(function(*arguments))


class Aside:
    """A function at work in a process of its own."""

    def __init__(self, function, *arguments):
        import multiprocessing      # which only big logs need
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=answer, args=(self.pipe, theirs, function, arguments), daemon=True)
        self.process.start()
        theirs.close()

    def result(self):
        """What the function returned, or None where it raised or its process was lost."""
        with contextlib.suppress(EOFError, OSError):
            return self.pipe.recv()

    def end(self) -> None:
        self.process.terminate()
        self.process.join()
        self.pipe.close()


def in_parts(file, function, *arguments) -> list:
    """[function(*arguments, start, stop)] for each part of a log's rows, at once in several processes where that pays.

    [] where that cannot be done or one raises: a single process can then tell what is wrong."""
    own, *others = parts_of(file) or [None]
    asides, results = [], []
    if not others:
        return []
    try:
        for part in others:
            asides.append(Aside(function, *arguments, *part))
        results = [function(*arguments, *own), *(aside.result() for aside in asides)]
    except (OSError, ImportError, RunError):
        pass
    finally:
        for aside in asides:
            aside.end()
    return [] if None in results else results


# Grade: the task and the cases of a log

def log_sources(header) -> tuple:
    """(the definition of a data task or the name of a module, the case set) that a log holds of its own, or None each."""
    if "cases" not in header:
        return None, None
    entry = header.get("task", {})
    return entry.get("data") or entry.get("module"), {"name": header["case_set"]["name"], "cases": header["cases"],
                                                    "sha256": header["case_set_sha256"]}


def check_own(path, header, task, case_set) -> None:
    """BenchError when the cases that a log's header holds are not sound, or not those whose inputs it was begun with."""
    problems = harness.case_file_problems(case_set, task)
    if not problems and {case["id"]: input_hash(case) for case in case_set["cases"]} != header.get("case_inputs"):
        problems = ["cases and case_inputs do not agree"]
    if problems:
        raise BenchError(f"{path}: line 1: the cases in the header are damaged: {problems[0]}")


def own_task(path, own, spec):
    """The task of a log: made of its data, or the module that the user names; no module runs because a log names it."""
    if spec is None and isinstance(own, dict):
        try:
            return harness.DataTask(own)
        except harness.CaseError as error:
            fault = str(error).partition("\n")[0]
            raise BenchError(f"{path}: line 1: the task in the header is damaged: {fault}") from None
    if spec is None and own != "triage_task":
        raise BenchError(f"{path}: its checks are the module {shown(own)}: give it with --task")
    return harness.load_task(spec or own)


def there(path):
    """The path of a file that is there, None for None; BenchError else."""
    if path is not None and not (isinstance(path, (str, Path)) and os.path.isfile(path)):
        raise BenchError(f"{path}: there is no such file here")
    return path


def sources_today(header, task, spec, cases_path) -> tuple:
    """(task, case set) as they are today: of the files that the user names, else of those that a log says it began with.

    The case set is None where neither does. RunError or CaseError for a file that is not there or has faults."""
    files = header.get("files", {})
    spec, cases_path = spec or files.get("task"), cases_path or files.get("cases")
    if isinstance(spec, str) and harness.is_task_file(spec):
        return harness.load_plan(there(spec), there(cases_path))
    if isinstance(task, harness.DataTask):
        raise BenchError("the log does not say which file its task is from: give it with --task")
    if cases_path is None and task.__name__ != "triage_task":
        return task, None
    return task, harness.load_cases(there(cases_path) or harness.DEFAULT_CASES, task)


def changed_since(header, task, case_set, spec, cases_path):
    """What to say of a log whose task or cases are not in their files as they were when it began, or None."""
    names = [name for name in (spec, cases_path) if name] or [
        name for name in header.get("files", {}).values() if name] or [harness.DEFAULT_CASES.name]
    now, today = sources_today(header, task, spec, cases_path)
    by_id = {case["id"]: case for case in today["cases"]} if today else {}
    if today and (harness.task_identity(now) != harness.task_identity(task)
                  or any(by_id.get(case["id"]) != case for case in case_set["cases"])):
        return f"{' or '.join(map(str, names))} has changed since this log began"
    return None


def with_inputs_of(path, header, case_set) -> dict:
    """Of a case set of today the cases that a log is of; BenchError where the input of one is not what was asked."""
    inputs = header.get("case_inputs")
    if header["case_set_sha256"] == case_set["sha256"] or inputs is None:
        return case_set         # without inputs to match only the same cases will do
    today = {case["id"]: case for case in harness.plan(case_set, header["splits"], header["trials"])}
    for case_id, was in inputs.items():
        if case_id not in today:
            raise BenchError(f"{path}: {case_set['name']} has no case {shown(case_id)} any more, which this log is of: "
                             "leave --regrade out")
        if input_hash(today[case_id]) != was:
            raise BenchError(f"{path}: the input of case {shown(case_id)} has changed, so its replies answer something "
                             "else: bench.py --from carries the trials of the other cases into a new log")
    return case_set if len(today) == len(inputs) else part_of(case_set, [today[case_id] for case_id in inputs])


def grading_sources(path, header, spec=None, cases_path=None, regrade=False, warn=lambda text: None) -> tuple:
    """(task, case set) with which a log is graded: what it holds of its own; with regrade what is there today.

    spec and cases_path are what the user names, None where he does not. The log may be hostile."""
    own, case_set = log_sources(header)
    if case_set is None:
        task, case_set = harness.load_plan(spec or "triage_task", cases_path)
        return task, with_inputs_of(path, header, case_set) if regrade else case_set
    task = own_task(path, own, None if harness.is_task_file(spec or ".json") else spec)
    if regrade:
        task, today = sources_today(header, task, spec, cases_path)
        if today is not None:
            return task, with_inputs_of(path, header, today)
    check_own(path, header, task, case_set)
    try:
        changed = changed_since(header, task, case_set, spec, cases_path)
    except (RunError, harness.CaseError) as error:
        if spec or cases_path:
            raise
        changed = str(error).partition("\n")[0]
    if changed and (spec or cases_path):
        raise BenchError(f"{path}: {changed}: name no file to use what the log holds, or add --regrade")
    if changed and not regrade:
        warn(f"{path}: {changed}: its own cases and checks are used; --regrade takes today's")
    return task, case_set


def logged_cases(header, log_path, case_set, regrade=False) -> list:
    """The cases that a log plans; BenchError where the case set is not the log's, nor one of the same inputs."""
    if header["bench_version"] not in READABLE:
        raise BenchError(f"{log_path}: bench_version is {shown(header['bench_version'])}, this is {BENCH_VERSION}: "
                         "read it with the bench.py that wrote it")
    if header["case_set_sha256"] != case_set["sha256"] and not (regrade and "case_inputs" in header):
        recorded, now = str(header["case_set_sha256"])[:12], case_set["sha256"][:12]
        raise BenchError(f"{log_path}: its case set ({recorded}) is not {case_set['name']} as it is now ({now}): give "
                         "its own with --cases; bench.py --from carries the trials of unchanged inputs into a new log")
    try:
        return harness.plan(case_set, header["splits"], header["trials"])
    except RunError as error:
        raise BenchError(f"{log_path}: {error}") from None


# Grade: logs as a recording

def not_run() -> dict:
    """What stands in a recording for a planned trial without a row in the log."""
    return {"error": {"types": ["NotRun"], "message": "planned, but not in the log"}, "latency_s": None}


def plan_of(header, case_set) -> dict:
    """The plan of the recording that a log of these cases is."""
    return {**{key: header[key] for key in harness.PLAN_KEYS}, "case_set_sha256": case_set["sha256"]}


def to_recording(log_path, case_set: dict | None = None, warn=lambda text: None) -> dict:
    """The recording of a log, or of a list of logs of one plan: every planned trial of every case, those that never ran
    as errors of type NotRun.

    Without a case set it is of the cases that the log holds; logs of the first version hold none."""
    logs = in_order(log_path if isinstance(log_path, list) else [log_path])
    path, header = logs[0]
    case_set = case_set or log_sources(header)[1]
    if case_set is None:
        raise BenchError(f"{path}: a log of the first version does not hold its cases: give them")
    cases = logged_cases(header, path, case_set)
    responses = {case["id"]: [not_run() for _ in range(header["trials"])] for case in cases}
    provenance, origin = merged_provenance([header for _, header in logs]), {}
    for number, (path, _) in enumerate(logs):
        with open_log(path) as file:
            reader = reader_of(file, path)
            for row in planned_rows(reader, cases):
                earlier = responses[row["case_id"]][row["trial"]]
                if (row["case_id"], row["trial"]) in origin:
                    check_once(row, path, earlier, origin[row["case_id"], row["trial"]])
                    continue
                if len(logs) > 1:
                    origin[row["case_id"], row["trial"]] = path
                    provenance["shards"][number]["trials"] += 1
                responses[row["case_id"]][row["trial"]] = response_of(row)
            warn_of_ties(path, reader.tie_faults(), warn)
    return {**plan_of(header, case_set), "responses": responses, "provenance": provenance}


# Grade: rows while they are read

def row_at(record, index, case, trial, files=None) -> dict:
    """The row of a trial, read again from where it stands; RunError where its log has changed meanwhile."""
    path = record.paths[record.origins[index]]
    file = files.get(path) if files else None
    with contextlib.ExitStack() as stack:
        file = file or stack.enter_context(open_log(path))
        file.seek(record.offsets[index])
        try:
            row = parse_line(file.readline().rstrip(BLANK))
        except ValueError:
            row = {}
    if (harness.dig(row, "case_id"), harness.dig(row, "trial")) != (case["id"], trial):
        raise RunError(f"{path}: the log was changed while it was read: give the command again")
    return row


def logged_rows(record, cases, task, number) -> list:
    """The rows of one case of its logs with their times, as in a run record."""
    case, rows = cases[number], []
    with contextlib.ExitStack() as stack:
        files = {path: stack.enter_context(open_log(path)) for path in record.paths}
        for trial, index in enumerate(range(*record.of(number).indices(len(record.endings)))):
            place = record.endings[index]
            response = row_at(record, index, case, trial, files) if place else not_run()
            ending = record.table[place]
            if len(ending[2] or "") > harness.REASON_LETTERS:
                ending = harness.grade(task, case, response)
            rows.append({**harness.result_row(case, trial, response, *ending), "started_at": response.get("started_at")})
    return rows


def grade_rows(record, reader, cases, task) -> None:
    """Tell a record what the rows of a log hold and how they are graded."""
    starts = {case["id"]: (number * record.trials, case) for number, case in enumerate(cases)}
    canonical, known = harness.canonical, {}
    for row in planned_rows(reader, cases):
        start, case = starts[row["case_id"]]
        index, output = start + row["trial"], row.get("output")
        if record.before and record.before.endings[index]:
            paths = record.before.paths
            check_once(row, reader.path, row_at(record.before, index, case, row["trial"]), paths[record.before.origins[index]])
            continue
        key = start, repr(output) if "error" not in row else None
        found = known.get(key)      # equal outputs of a case end alike
        if found is None:
            found = (record.place_of(harness.grade(task, case, row)),
                     0 if output is None else harness.fingerprint(canonical(output)))
            if key[1] is not None and len(key[1]) <= 200 and len(known) < 20000:
                known[key] = found
        record.endings[index], record.outputs[index] = found
        record.offsets[index] = reader.offset
        text = canonical(response_of(row))
        record.hashes[32 * index:32 * index + 32] = hashlib.sha256(text.encode()).digest()
        try:
            record.tell(index, row["metadata"], row["latency_s"])
        except RunError as error:
            raise RunError(f"line {reader.number}: {error}") from None


def graded_part(record, path, header, cases, task, start, stop) -> dict:
    """The columns of a record, by name, after the rows between two places of a log; RunError where they end torn."""
    with open_log(path) as file:
        reader = LogReader(file, path, header=header, start=start, stop=stop)
        grade_rows(record, reader, cases, task)
        if reader.kept != stop or reader.loose or reader.untied:
            raise RunError(f"{path}: the part does not end with a row, or its lines are not tied")
    return {name: getattr(record, name) for name in ("table", "endings", "outputs", "offsets", "hashes", "amounts", "sure",
                                                     "setups")}


def read_rows(path, header, empty, cases, task) -> harness.Record:
    """An empty record after all rows of a log; RunError names the log."""
    try:
        with open_log(path) as file:
            record = empty()
            own, *others = in_parts(file, graded_part, record, path, header, cases, task) or [None]
            if own is None or not all(map(record.absorb, others)):
                record, reader = empty(), reader_of(file, path)
                grade_rows(record, reader, cases, task)
                record.faults = reader.tie_faults()
            return record
    except RunError as error:
        raise RunError(str(error) if str(path) in str(error) else f"{path}: {error}") from error


def read_logs(logs, empty, cases, task, shards) -> harness.Record:
    """The record of all rows of [(path, header)]; shards, one for each of several logs, learn what they had."""
    merged = None
    for number, (path, header) in enumerate(logs):
        part = read_rows(path, header, lambda before=merged: empty(before), cases, task)
        if shards:
            part.faults = [f"in {path} {fault}" for fault in part.faults]
            shards[number]["trials"] = part.told()
            versions = {harness.as_text(setup[0]) for setup in part.setups if setup[0] is not None}
            shards[number]["server_versions"] = sorted(versions)
        if merged is None:
            merged = part
            continue
        for index in compress(range(len(part.endings)), part.endings):
            merged.origins[index] = number
        if not merged.absorb(vars(part)):
            raise RunError(f"{path}: the log was changed while it was read: give the command again")
        merged.faults += part.faults
    return merged


def log_record(logs, task, case_set, regrade) -> harness.Record:
    """The record of [(path, header)] of one plan, graded while they are read."""
    path, header = logs[0]
    cases = logged_cases(header, path, case_set, regrade)
    plan = {**plan_of(header, case_set), "provenance": merged_provenance([header for _, header in logs])}
    for problem in harness.plan_problems(plan, case_set):
        raise RunError(problem)
    harness.check_task(plan, task, regrade)
    manifest = harness.run_manifest(plan, task, case_set, None)

    def empty(before):
        made = harness.Record(manifest, {case["id"]: case["class"] for case in cases},
                              {case["id"] for case in cases if "expect_rejection" in case},
                              lambda number: logged_rows(made, cases, task, number))
        made.before, made.paths = before, [path for path, _ in logs]
        made.origins = array("H", [0]) * len(made.endings)
        return made
    record = read_logs(logs, empty, cases, task, plan["provenance"].get("shards"))
    record.finish(hashlib.sha256(harness.canonical(not_run()).encode()).digest())
    hashes, width = record.hashes.hex(), 64 * record.trials
    manifest["recording_sha256"] = harness.trials_sha256(plan, (
        (name, [hashes[at:at + 64] for at in range(start, start + width, 64)])
        for name, start in zip(record.cases, range(0, len(hashes), width))))
    del record.hashes
    record.asked, record.task = {case["id"]: case for case in cases}, task
    return record


def graded_logs(paths, task, case_set, regrade) -> harness.Record:
    """The record of a log, or of logs of one plan, graded now; RunError names the log."""
    try:
        return log_record(in_order(paths), task, case_set, regrade)
    except RunError as error:
        raise RunError(str(error) if any(str(path) in str(error) for path in paths) else f"{paths[0]}: {error}") from error


# Grade: what two runs are made of

def made_of(record) -> dict:
    """What a run is to be repeated with: the system, what it was asked and how, by what and on what."""
    manifest, ran_on = record.manifest, harness.runtimes(record)
    environment, asked = (harness.dig(manifest, "provenance", key) for key in ("environment", "asked"))
    return {**{key: value for key, value in manifest["system"].items() if key != "mode"},
            "harness_version": manifest["harness_version"], "bench_version": harness.dig(manifest, "provenance", "bench_version"),
            **{harness.RUNTIMES[key]: ", ".join(ran_on.get(key, ())) or None for key in ("server_version", "workers")},
            "asked": asked if isinstance(harness.dig(asked, "messages"), list) else {},
            **(environment if isinstance(environment, dict) else {})}


def what_differs(records, titles) -> dict:
    """{differs: [[what, the one's, the other's]], prompt_lines: the lines of a difference} of what two runs were made of."""
    made = list(map(made_of, records))
    asked = [one.pop("asked") for one in made]
    lines = prompt_difference(*({"system": one, "asked": its} for one, its in zip(made, asked)), titles)
    for one, its in zip(made, asked if all(asked) else ()):
        one.update(prompt=its["messages"], schema=its.get("schema"))      # the hashes alone would not say what differs
    found = differences(*made)
    told = [[key, *harness.excerpts(old, new)] for key, old, new in found if not (lines and key == "prompt")]
    return {"differs": [one for one in told if one[0] != "name" or "model" not in {key for key, *_ in found}],
            "prompt_lines": lines}


# Write: locks

def lock(file_descriptor) -> None:
    """Take the lock that dies with the process; BlockingIOError when another process has it."""
    if fcntl:
        fcntl.flock(file_descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    os.lseek(file_descriptor, LOCK_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(file_descriptor, msvcrt.LK_NBLCK, 1)
    except OSError as error:
        if error.errno in harness.NOT_OFFERED:
            raise
        raise BlockingIOError from None


def is_running(pid) -> bool:
    """Whether a process of this machine is running; where that cannot be asked it may be."""
    if harness.ON_WINDOWS:      # where os.kill ends the process
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:     # somebody else's
        pass
    return True


class LockFile:
    """A lock where the file system has none: a file beside the log that names the host and process which has it."""

    def __init__(self, log):
        self.path = log.with_name(f"{log.name}.lock")
        self.mine = f"{platform.node()} {os.getpid()} {os.urandom(6).hex()}\n"
        left = self._left_behind()
        if left is not None and left == self._text():       # nobody has taken it over meanwhile
            self.path.unlink()
        try:
            file = open(self.path, "x", encoding="utf-8")
        except FileExistsError:
            raise BlockingIOError from None
        try:
            with file:
                file.write(self.mine)
        except OSError:
            self.path.unlink()      # on a full disk: an empty one would name nobody
            raise

    def held(self) -> bool:
        """Whether it is still there and ours."""
        return self._text() == self.mine

    def remove(self) -> None:
        """Give the lock back."""
        if self.held() and self.mine.split()[1] == str(os.getpid()):    # not by a child that a system forked
            self.path.unlink()

    def _text(self):
        try:
            return self.path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def _left_behind(self):
        """The text of a lock file whose process has ended, None where there is none; BenchError for any other."""
        text = self._text()
        if text is None:
            return None
        host, _, rest = text.partition(" ")
        pid = rest.partition(" ")[0]
        if host != platform.node() or not pid.isdecimal():
            raise BenchError(f"{self.path}: the log is locked by {shown(text.strip())} (host, process): wait for it, or, "
                             f"when it has ended, remove that file: {harness.REMOVE} {harness.in_shell(self.path)}")
        if is_running(int(pid)):
            raise BenchError(f"{self.path}: another bench.py (process {pid}) is writing this log; wait for it, or, when "
                             f"that process is something else, remove this file: {harness.REMOVE} {harness.in_shell(self.path)}")
        return text


# Write: a log

def sync_folder(folder) -> None:
    """Make a new file's name durable, where folders can be opened at all."""
    if not harness.ON_WINDOWS:
        with contextlib.suppress(OSError):      # some file systems sync no folders, some folders are not to be read
            file_descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(file_descriptor)
            finally:
                os.close(file_descriptor)


class LogFile:
    """A log open for appending: locked against a second writer, each append one write and, after every sync_every of
    them, on disk when it returns. warn is told where the file system has no locks or no sync."""

    def __init__(self, path, sync_every: int = 1, locked: bool = True, warn=lambda text: None):
        # The file itself, wherever a link or a change of the folder may lead later.
        self.path = Path(os.path.realpath(path))
        self.sync_every, self.unsynced, self.locked, self.warn, self.lock_file = sync_every, 0, locked, warn, None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.created = not self.path.exists()
            self.fd = self._open_locked()
            self.size, self.tie = os.fstat(self.fd).st_size, ""      # of the last line; None where lines have none
            if not self.size:
                self._sync()        # the header tells whether this can be done
        except OSError as error:
            raise BenchError(f"{path}: the log cannot be opened: {error.strerror}") from None
        if hasattr(os, "register_at_fork"):     # a child that a system forks must not hold the lock on
            own = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: own() and own().close())

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        try:
            if self.created and self.size == 0 and self._at_path():
                self._leave_no_file()
            elif self.unsynced:
                self._sync()
        except OSError as error:
            if exception == (None, None, None):     # else that is what there is to tell
                raise BenchError(f"{self.path}: the log cannot be written: {error.strerror}") from None
        finally:
            self.close()
            if self.lock_file:
                self.lock_file.remove()

    def _leave_no_file(self):
        """Remove the empty log of a run that has not begun."""
        if not harness.ON_WINDOWS:
            self.path.unlink()      # still locked, so that it is nobody else's by now
            return
        self.close()        # Windows removes no open file, neither ours nor that of another run
        with contextlib.suppress(PermissionError):
            self.path.unlink()

    def close(self) -> None:
        """Give the file and its lock back, once: its number may be another file's by the next time."""
        fd, self.fd = self.fd, None
        if fd is not None:
            os.close(fd)

    def _open_locked(self):
        while True:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
                         | getattr(os, "O_NONBLOCK", 0), 0o666)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise BenchError(f"{self.path}: the log is not a regular file: give another --log")
                self._lock(fd)
                self.fd = fd
                if self._at_path():
                    return fd
            except BlockingIOError:
                os.close(fd)
                raise BenchError(f"{self.path}: another bench.py is writing this log; "
                                 "wait for it, or give another --log") from None
            except BaseException:
                os.close(fd)
                raise
            if self.lock_file:
                self.lock_file.remove()
            os.close(fd)    # replaced between opening and locking: take the file that is there now

    def _lock(self, fd):
        if not self.locked:
            return
        try:
            lock(fd)
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno not in harness.NOT_OFFERED:
                raise
            self.lock_file = LockFile(self.path)
            self.warn(f"{self.path}: its file system has no locks ({error.strerror}): {self.lock_file.path.name} beside "
                      "it keeps a second bench.py away")

    def _sync(self):
        """Bring what was written onto the disk, where the file system does that, which is told once."""
        self.unsynced = 0
        if self.sync_every and not harness.sync(self.fd):
            self.sync_every = 0
            self.warn(f"{self.path}: its file system syncs nothing to the disk: a power cut may take trials with it")

    def _at_path(self):
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self.fd))
        except OSError:
            return False

    def reading(self):
        """The log as a file to be read from its start."""
        file = open(self.fd, "rb", closefd=False)
        file.seek(0)
        return file

    def check(self) -> None:
        """BenchError when the path no longer names the open file, or something else wrote to it."""
        if not self._at_path():
            raise BenchError(f"{self.path}: the log was removed or replaced under the run; "
                             "put it back, then run the same command")
        if self.lock_file and not self.lock_file.held():
            raise BenchError(f"{self.lock_file.path}: this lock of the log was removed or taken over under the run: see "
                             "that no other bench.py writes the log, then run the same command")
        if os.fstat(self.fd).st_size != self.size:
            raise BenchError(f"{self.path}: the log was changed under the run by something else; "
                             "see that its last line is whole, then run the same command")

    def keep(self, reader: LogReader) -> None:
        """Cut the file to its good part and end the last line, so that the next row starts a line of its own."""
        try:
            if self.size != reader.kept:
                os.ftruncate(self.fd, reader.kept)
            self.size, self.tie = reader.kept, reader.tie if reader.has_ties() else None
        except OSError as error:
            raise BenchError(f"{self.path}: the log cannot be mended: {error.strerror}") from None
        if reader.unended:
            self._write(b"\n")

    def append(self, values, at_once=False) -> None:
        """Add a line for each JSON value, all in one write, synced at once or when its turn comes."""
        self.check()
        self.unsynced += self.sync_every if at_once else len(values)
        tie, lines = self.tie, []
        for value in values:
            line = ROW.encode(value).encode("ascii")
            if tie is not None:
                before, tie = tie, tie_of(tie, line)
                if before:      # else it is the header, which begins the chain
                    line = line[:-1] + f', "tie": "{tie}"}}'.encode()
            lines.append(line + b"\n")
        self._write(b"".join(lines))
        self.tie = tie

    def _write(self, data):
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self.fd, left):]
            if self.unsynced >= self.sync_every:
                self._sync()
        except OSError as error:
            try:
                os.ftruncate(self.fd, self.size)        # leave whole lines only
            except OSError:
                pass        # a torn last line is dropped by the next run
            raise BenchError(f"{self.path}: the log cannot be written: {error.strerror}; mend that, then run the "
                             "same command: all trials logged so far are kept") from None
        self.size += len(data)


# Write: rows of other logs

def rows_in_common(path, reader, header):
    """The rows of an older log that the plan of a new header contains: same system, same input, same seed."""
    found = differences(spelt_as(reader.header["system"], header["system"]), header["system"], "system.")
    if found:
        raise BenchError(f"{path}: its trials are of another system: {in_words(found, 'there')}")
    inputs, rounds = header["case_inputs"], rounds_of(header["trials"], header.get("shard"))
    same_set = reader.header["case_set_sha256"] == header["case_set_sha256"]
    known = reader.header.get("case_inputs", inputs if same_set else {})
    return (row for row in reader.rows() if row["trial"] in rounds and row["case_id"] in inputs
            and known.get(row["case_id"]) == inputs[row["case_id"]])


def old_rows(path, file, header, warn) -> tuple:
    """(the header of an older log, its rows that a new plan contains); damaged lines are left out with a warning."""
    file.seek(0)
    damaged = []
    reader = LogReader(file, path, damaged)
    if reader.header is None:
        warn_of_torn(path, reader, warn)
        raise BenchError(f"{path}: the log holds no run: there is nothing to take over")
    rows = list(rows_in_common(path, reader, header))
    warn_of_torn(path, reader, warn)
    warn_of_ties(path, reader.tie_faults(), warn)
    for number, problem in damaged:
        warn(f"{path}: line {number} is left out: {problem}")
    if identity_in(reader.header) not in (None, identity_in(header)):
        warn(f"{path}: it began with other checks; the new log's trials are graded with today's")
    return reader.header, rows


def taken_over(paths, header, redo_unanswered, warn) -> tuple:
    """(rows that older logs have for a new plan, what the new header says of it, what a server said of the model).

    In which order the logs are given changes nothing. A trial with two different results is a BenchError."""
    rows, origin, sources, run_again, skipped, facts = {}, {}, {}, 0, set(), None
    for path in paths:
        with open_log(path) as file:
            sources.setdefault(hashlib.file_digest(file, "sha256").hexdigest(), path)
    for _, path in sorted(sources.items()):
        with open_log(path) as file:
            old, found = old_rows(path, file, header, warn)
        facts = facts or old.get("environment", {}).get("server")
        for row in found:
            key = row["case_id"], row["trial"]
            if redo_unanswered and not answered(row):
                skipped.add(key)
                continue
            if key in rows:
                check_once(row, path, rows[key], origin[key], "taken over together")
            else:
                rows[key], origin[key] = row, path
        run_again += old.get("run_again", 0)
    run_again += len(skipped - set(rows))
    place = {case_id: place for place, case_id in enumerate(header["case_inputs"])}
    ordered = sorted(rows.values(), key=lambda row: (row["trial"], place[row["case_id"]]))
    return ordered, {"from": [{"sha256": digest} for digest in sorted(sources)], "taken_over": len(rows),
                     "run_again": run_again}, facts


# Run: workers and what is said meanwhile

class Crew:
    """Worker threads: each job's (index, result or exception) comes back through results, a signal as None."""

    def __init__(self, workers: int, signals=None):
        self.jobs, self.results, self.busy, self.signals = queue.SimpleQueue(), queue.SimpleQueue(), 0, signals
        self.workers = workers
        for _ in range(workers):
            threading.Thread(target=self._work, daemon=True).start()
        if signals:
            signals.wake = self.results

    def _work(self):
        for index, function, arguments in iter(self.jobs.get, None):
            try:
                result = function(*arguments)
            except BaseException as error:      # it is raised again, or judged, by the thread that takes the result
                result = error
            self.results.put((index, result))

    def start(self, index, function, *arguments) -> None:
        self.jobs.put((index, function, arguments))
        self.busy += 1

    def wait(self, timeout_s: float):
        """(index, result) of a job that ends in time, or None. Raises Interrupted."""
        try:
            found = self.results.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if found is None:
            raise Interrupted(self.signals.signum)
        self.busy -= 1
        return found

    def result(self, idle=lambda: None) -> tuple:
        """(index, result) of the next job that ends; idle is called each second until then. Raises Interrupted."""
        found = self.wait(1)        # Windows sees a Ctrl-C only between two waits
        while found is None:
            idle()
            found = self.wait(1)
        return found

    def finished(self):
        """The results that have come in meanwhile, without waiting."""
        while not self.results.empty():
            found = self.results.get()
            if found:
                self.busy -= 1
                yield found

    def dismiss(self) -> None:
        for _ in range(self.workers):
            self.jobs.put(None)


class Seat:
    """A worker's place: which of the servers it asks, its own next trials, and where in the plan that server's cache is."""

    def __init__(self, number, system):
        self.number, self.system, self.queue, self.primed_for = number, system, deque(), None


def tell(progress, text, urgent=False) -> None:
    """Say what the run does while no trial ends, where there is somebody to say it."""
    if hasattr(progress, "note"):
        progress.note(text, urgent)


def tell_away(progress, wait_s) -> None:
    tell(progress, f"the system is away, waiting up to {format_duration(wait_s)}", urgent=True)


def is_hopeless(calls) -> bool:
    """Whether, of model calls counted by what they ended as, none could be graded and several ended alike."""
    return None not in calls and max(calls.values(), default=0) >= HOPELESS_CALLS


def unusable_lines(system, calls) -> list:
    """How many model calls of a run that goes on all the same could not be graded, and the setting to change, a line a cause."""
    ended = [(name, number, call_hook(system, "advice", name)) for name, number in calls.most_common() if name is not None]
    return [f"{number} of {sum(calls.values())} model calls ended as {name}" + (f": {advice}" if advice else "")
            for name, number, advice in ended]


def hopeless_text(system, calls) -> str:
    """What such calls ended as and the setting to change: "none of 5 model calls …: 5 TruncatedReply: raise …"."""
    (name, number), = calls.most_common(1)
    total = sum(calls.values())
    advice = call_hook(system, "advice", name)
    ended = f"all ended as {name}" if number == total else f"{number} ended as {name}"
    return f"none of {total} model calls could be graded, {ended}" + (f": {advice}" if advice else "")


# Run: one invocation

class Run:
    """One invocation on one open log: which trials are pending, what became of the others, and why it stops."""

    def __init__(self, systems, cases, trials, log, clock, budget_s, workers, wait_s, stop_if_hopeless, grade, progress,
                 warn, extend, shard):
        self.systems, self.system, self.cases, self.log, self.clock = systems, systems[0], cases, log, clock
        self.workers = workers
        self.seats = [Seat(number % len(systems), systems[number % len(systems)]) for number in range(workers)]
        self.at_each = Counter(seat.number for seat in self.seats)
        self.in_order = workers == len(systems)     # one trial at a time at each
        self.free, self.away, self.begun = deque(self.seats), set(), False
        self.rounds = rounds_of(trials, shard)
        self.planned = len(cases) * len(self.rounds)
        self.budget_s, self.wait_s, self.grade, self.progress, self.warn = budget_s, wait_s, grade, progress, warn
        self.by_id = {case["id"]: case for case in cases}
        self.verdicts = {case["id"]: ["not run"] * trials for case in cases}
        self.done = {case["id"]: bytearray(trials) for case in cases}
        self.stop_if_hopeless, self.extend = stop_if_hopeless, extend
        self.check_raised = self.hopeless = False
        self.calls = Counter()      # the model calls of this invocation by their error's name, None for an output
        self.warned = set()
        self.started = clock()
        self.idle_s = 0.0       # spent on loading and waiting, which tells nothing of the trials' rate
        self.pending = deque()
        self.already_logged = self.ran = 0
        self.unanswered = Counter()     # trials in a row at each server
        self.stopped_by_budget = False
        self.down = self.down_since = None

    def counts(self) -> dict:
        """The plan's trials: already logged before, run now, not run."""
        not_run = self.planned - self.already_logged - self.ran
        return {"planned": self.planned, "already_logged": self.already_logged, "ran": self.ran,
                "not_run": not_run, "stopped_by_budget": self.stopped_by_budget}

    def judge(self, row) -> str | None:
        """The verdict on a logged row, which is kept; None where nobody grades. The first check that raises is told."""
        if not self.grade:
            return None
        verdict, _, reason = self.grade(self.by_id[row["case_id"]], row)
        self.verdicts[row["case_id"]][row["trial"]] = verdict
        if verdict == "incomplete" and reason.startswith("CheckError:") and not self.check_raised:
            self.check_raised = True
            self.warn(f"case {row['case_id']}, trial {row['trial']}: {reason}; mend the check, the trials are kept")
        return verdict

    def resume(self, rows) -> None:
        """Count and judge the rows that the log holds already."""
        for row in rows:
            self.already_logged += 1
            self.done[row["case_id"]][row["trial"]] = True
            self.judge(row)

    def plan_rest(self, taken) -> None:
        """Note as pending, in trial-major order, what the log holds not and what is not to be taken over."""
        for row in taken:
            self.done[row["case_id"]][row["trial"]] = True
        done, size = chain.from_iterable(zip(*self.done.values())), len(self.cases)
        self.pending.extend(index for index, one in enumerate(done) if not one and index // size in self.rounds)

    def trial_at(self, index) -> tuple:
        """(case, trial) of a place in the plan."""
        trial, place = divmod(index, len(self.cases))
        return self.cases[place], trial

    def left(self) -> bool:
        """Whether a trial is still to be begun."""
        return bool(self.pending) or any(seat.queue for seat in self.seats)

    def next_for(self, seat) -> int:
        """The place in the plan of the next trial at a seat. Of several servers each runs whole rounds, in their order,
        for as long as there are some, and helps the others at the end."""
        if not self.in_order or len(self.systems) == 1:
            return self.pending.popleft()
        size = len(self.cases)
        if not seat.queue and self.pending:
            number = self.pending[0] // size
            while self.pending and self.pending[0] // size == number:
                seat.queue.append(self.pending.popleft())
        elif not seat.queue:
            seat.queue.append(max((other.queue for other in self.seats), key=len).pop())
        return seat.queue.popleft()

    def budget_spent(self) -> bool:
        """Whether the time is up while trials are left, which is noted."""
        spent = self.budget_s is not None and self.clock() - self.started >= self.budget_s
        self.stopped_by_budget = self.stopped_by_budget or bool(spent and self.left())
        return spent

    def before(self, index) -> list:
        """The cases that come before a planned trial, the most recent last: a whole round."""
        place = index % len(self.cases)
        return self.cases[place:] + self.cases[:place]

    def prepare(self, system, index) -> dict:
        """Check a system and put its cache where an undisturbed run has it; what the server says of the model."""
        call_hook(system, "check_model")
        call_hook(system, "prime", self.before(index))
        try:
            return harness.exact(call_hook(system, "server_facts") or {}, "server facts")
        except harness.OutputError as error:
            raise RunError(f"{system.name}: {error}") from error

    def trial(self, system, index, prime) -> tuple:
        """(started_at, response) of one planned trial, in a worker thread."""
        case, trial = self.trial_at(index)
        if prime:
            call_hook(system, "prime", self.before(index))
        return utc_now(), harness.attempt(system, case, trial, self.clock)

    def again(self, crew, index, alone) -> dict:
        """The response of a planned trial, run by itself behind what comes before it; raises what stops the run."""
        seat, = self.seats
        if seat.primed_for is None:
            self.pending.append(index)
            self.first_prepared(crew)
        crew.start((index, seat), self.trial, self.system, index, alone and index != seat.primed_for)
        seat.primed_for = index + 1
        _, result = crew.result()
        if isinstance(result, BaseException):
            raise result
        return result[1]

    def start_trials(self, crew) -> None:
        """Hand the next trials to idle workers, unless the time is up."""
        while self.free and self.left() and not self.budget_spent():
            self.log.check()
            seat = self.free.popleft()
            index = self.next_for(seat)
            # With one worker every trial follows its predecessor's prompt, across gaps in the log too. That is the same
            # one in every round.
            prime = self.in_order and (index - seat.primed_for) % len(self.cases) != 0
            crew.start((index, seat), self.trial, seat.system, index, prime)
            seat.primed_for = index + 1

    def lose(self, seat, down, fatal) -> None:
        """Go on without a server where others are left; else note that the system is down."""
        if seat.number not in self.away:
            self.away.add(seat.number)
            gone = [one for one in self.seats if one.number == seat.number]
            self.pending = deque(sorted(chain(self.pending, *(one.queue for one in gone))))
            for one in gone:
                one.queue.clear()
            self.free = deque(one for one in self.free if one.number != seat.number)
            left = len(self.systems) - len(self.away)
            if left and not fatal:
                self.warn(f"{seat.system.host}: {down}; the run goes on at the other {plural(left, 'server')}")
                return
            self.down = self.down or down

    def log_row(self, index, seat, started_at, response) -> None:
        """Append one finished trial; notes a SystemDown where too many in a row had no reply."""
        case, trial = self.trial_at(index)
        row = {"case_id": case["id"], "trial": trial, "started_at": started_at, "latency_s": response["latency_s"],
               "metadata": {**response["metadata"], "workers": self.at_each[seat.number]}, **response_part(response)}
        self.log.append([row])
        for key, value in row["metadata"].get(harness.LEFT_OUT, {}).items():
            self.warn_once(f"{self.system.name} says {key} is {value}, not a number from 0 to {harness.MOST_AMOUNT:g}: "
                           "such are left out of the log", key)
        self.ran += 1
        if not is_refusal(row):
            self.down_since = None      # only a trial that ends shows that the wait is over, not a server that answers
            self.unanswered[seat.number] = self.unanswered[seat.number] + 1 if is_silent(row) else 0
        if self.unanswered[seat.number] >= UNANSWERED_IN_A_ROW and is_silent(row):
            reason = f"{row['error']['types'][0]}: {row['error']['message']}"
            self.lose(seat, SystemDown(f"{self.unanswered[seat.number]} trials in a row had no reply of the model, the last "
                                       f"with {reason}: see what is wrong with it"), fatal=False)
        verdict = self.judge(row)
        if self.progress:
            self.progress(self.counts(), self.clock() - self.started - self.idle_s, row, verdict)
        if not is_refusal(row):
            self.calls[None if "output" in row else row["error"]["types"][0]] += 1

    def see_hope(self) -> None:
        """Say once that no trial of the run can be graded, or stop it there where that is asked for."""
        if self.hopeless or not is_hopeless(self.calls):
            return
        self.hopeless = True
        text = hopeless_text(self.system, self.calls)
        if self.stop_if_hopeless:
            raise Hopeless(f"{text}; stopped by --stop-if-hopeless")
        self.warn(f"{text}; the run goes on (--stop-if-hopeless would end it)")

    def tell_warnings(self) -> None:
        """Pass on what the system warns of, each text once."""
        for text in chain(*(getattr(system, "warnings", None) or () for system in self.systems)):
            self.warn_once(text, text)

    def warn_once(self, text, key) -> None:
        if key not in self.warned:
            self.warned.add(key)
            self.warn(text)

    def finish(self, job, result) -> None:
        """Log a trial that has ended, or note why it could not run."""
        index, seat = job
        if isinstance(result, SystemDown):
            self.pending = deque(sorted([index, *self.pending]))
            self.lose(seat, result, fatal=not result.may_return)
        elif isinstance(result, BaseException):
            raise result
        else:
            self.log_row(index, seat, *result)
            self.see_hope()
        if seat.number not in self.away:
            self.free.append(seat)

    def prepared(self, crew) -> dict | None:
        """What prepare found, in a worker so that a signal ends it too; None, with down set, for a system that is away."""
        began = self.clock()
        tell(self.progress, "getting the system ready")
        results = self.at_all(crew, range(len(self.systems)), lambda system: self.prepare(system, self.pending[0]))
        self.idle_s += self.clock() - began
        self.tell_warnings()
        downs = {number: result for number, result in results.items() if isinstance(result, SystemDown)}
        for result in results.values():
            if isinstance(result, BaseException) and not isinstance(result, SystemDown):
                raise result
        # Each has to be there at the start; later those that are.
        if downs and (not self.begun or len(downs) == len(results) or not all(down.may_return for down in downs.values())):
            self.down = min(downs.values(), key=lambda down: down.may_return)
            return None
        self.down, self.begun, self.away = None, True, set(downs)
        self.unanswered.clear()
        self.free = deque(seat for seat in self.seats if seat.number not in self.away)
        for seat in self.seats:
            seat.primed_for = self.pending[0]
        hosts = {"hosts": [system.host for system in self.systems]} if len(self.systems) > 1 else {}
        return {**next(result for number, result in sorted(results.items()) if number not in downs), **hosts}

    def at_all(self, crew, numbers, function) -> dict:
        """{number: what function(system) returned or raised} of some systems, each in a worker."""
        for number in numbers:
            crew.start((None, number), function, self.systems[number])
        found = [crew.result() for _ in numbers]
        return {number: result for (_, number), result in found}

    def wait(self, crew) -> None:
        """Pause before the system is asked again; raises what is wrong when it is not worth waiting any longer."""
        self.down_since = self.clock() if self.down_since is None else self.down_since
        if not self.down.may_return or self.clock() - self.down_since >= self.wait_s or self.budget_spent():
            raise self.down
        tell_away(self.progress, self.wait_s)
        crew.wait(WAIT_PAUSE_S)
        self.idle_s += WAIT_PAUSE_S

    def first_prepared(self, crew) -> dict:
        """What the server says of the model, once the system can run trials."""
        facts = self.prepared(crew)
        while facts is None:
            self.wait(crew)
            facts = self.prepared(crew)
        self.down_since = None
        return facts

    def go(self, crew) -> None:
        """Run pending trials until none is left, the time is up, or the system is down."""
        while True:
            if not self.down:
                self.start_trials(crew)
            if crew.busy:
                self.finish(*crew.result(getattr(self.progress, "tick", lambda: None)))
            elif not self.down:
                return
            else:
                self.wait(crew)
                self.prepared(crew)

    def confirm(self, crew) -> None:
        """See at the end that the system is still the one of the log; raises the SystemDown that names another."""
        if not self.ran or not harness.has(self.system, "confirm"):
            return
        there = [number for number in range(len(self.systems)) if number not in self.away]
        for result in self.at_all(crew, there, lambda system: call_hook(system, "confirm")).values():
            if isinstance(result, SystemDown) and result.may_return:
                self.warn(f"that the system is still the same could not be seen at the end: {result}")
            elif isinstance(result, BaseException):
                raise result

    def stop(self, crew) -> None:
        """Keep the trials that have ended, and end the calls in flight."""
        try:
            for (index, seat), result in crew.finished():
                if index is not None and not isinstance(result, BaseException):
                    self.log_row(index, seat, *result)
        except BenchError:
            pass        # the log is what stopped the run
        if crew.busy:
            closing = threading.Thread(target=self.close, daemon=True)
            closing.start()
            closing.join(CLOSE_S)

    def close(self) -> None:
        """End the calls in flight; a system that cannot do it must not keep the run from stopping."""
        for system in self.systems:
            with contextlib.suppress(RunError, SystemDown):
                call_hook(system, "close")


# Run: a run from its log on

def patiently(action, wait_s, clock, progress):
    """What action returns, tried again for wait_s seconds while it raises a SystemDown that may mend itself."""
    since = clock()
    while True:
        try:
            return action()
        except SystemDown as down:
            if not down.may_return or clock() - since >= wait_s:
                raise
        tell_away(progress, wait_s)
        time.sleep(WAIT_PAUSE_S)


def check_other(system, other, header, identity) -> None:
    """RunError when the system at another server is not the one of a header."""
    for key, old, new in differences(header["system"], identity)[:1]:
        raise RunError("{} and {} do not have the same system: {} is {} there, {} here: pull the same model on both".format(
            system.host, other.host, key, *harness.excerpts(old, new)))


def continue_log(run, reader, header, taken):
    """Make an existing log ready for new rows: the same plan, the same sources, all rows of theirs."""
    log, logged = run.log, reader.header
    run.extend = run.extend and logged["trials"] < header["trials"]
    check_plan(log.path, {**logged, "trials": header["trials"]} if run.extend else logged, header)
    for key in ("case_inputs", "cases"):        # no report would take the trials of a log that contradicts its own hash
        if logged.get(key, header[key]) != header[key]:
            raise BenchError(f"{log.path}: line 1: {key} is not what its case_set_sha256 says: the header was changed; put "
                             "it back, or give another --log")
    was = {**{key: logged.get(key) for key in taken[1]}, "from": sorted(logged.get("from", []), key=harness.canonical)} \
        if taken else None
    if taken and taken[1] != was:
        now = " as they are now and this --redo-unanswered" if "from" in logged else ""
        raise BenchError(f"{log.path}: it exists and was not begun with these --from logs{now}; give another --log")
    run.resume(planned_rows(reader, run.cases))
    warn_of_ties(log.path, reader.tie_faults(), run.warn)
    missing = logged.get("from") and run.already_logged < logged.get("taken_over", 0)
    if missing and not taken:
        raise BenchError(f"{log.path}: taking over other logs was cut short; give the same --from again")
    log.keep(reader)
    if missing:
        rows = [row for row in taken[0] if not run.done[row["case_id"]][row["trial"]]]
        log.append(rows, at_once=True)
        run.resume(rows)


def begin_log(run, reader, header, taken, facts):
    """Write a new log's header and the rows that it takes over."""
    rows, entries, told = taken or ([], {}, None)
    if facts or told:
        header["environment"]["server"] = facts or told
    run.log.keep(reader)
    settings = {"sync": run.log.sync_every or None}
    if harness.has(run.system, "keep_alive"):
        settings["keep_alive"] = harness.as_text(run.system.keep_alive)
    if getattr(run.system, "logprobs", None) is not None:
        settings["logprobs"] = run.system.logprobs
    run.log.append([{**header, **settings, **entries}, *rows], at_once=True)
    sync_folder(run.log.path.parent)
    run.resume(rows)


def run_bench(system, case_set: dict, splits, trials: int, log_path, budget_s=None, clock=time.perf_counter,
              hardware=None, task=None, workers: int = 1, wait_s: float = 0, sources=(),
              redo_unanswered: bool = False, extend: bool = False, shard=None, also=(), stop_if_hopeless: bool = False,
              sync_every: int = 1, locked: bool = True, signals=None, grade=None, progress=None,
              warn=lambda text: None, told=None) -> dict:
    """Run the planned trials that the log does not hold, each appended to it as it ends, then graded and told.

    grade(case, response) gives (verdict, check, reason). progress(counts, elapsed_s, row, verdict) takes each trial;
    its begin(header, cases, verdicts, calls), where it has one, what became of them so far. Returns {planned,
    already_logged, ran, not_run, stopped_by_budget}, which is the attribute counts of what is raised once trials
    could run (BenchError, SystemDown, Interrupted). budget_s and wait_s are seconds on the clock; every sync_every
    trials the log is brought onto the disk; shard, {part, of}, says which part of the plan is run; also is the same
    system at other servers; told is what else the header of a new log says."""
    cases = harness.plan(case_set, splits, trials)
    told = {**(told or {}), **({"shard": shard} if shard else {})}
    header = patiently(lambda: header_for(system, case_set, splits, trials, budget_s, hardware, task, told),
                       wait_s, clock, progress)
    for other in also:
        check_other(system, other, header, patiently(lambda: harness.system_identity(other), wait_s, clock, progress))
    taken = taken_over(sources, header, redo_unanswered, warn) if sources else None
    with LogFile(log_path, sync_every, locked, warn) as log:
        run = Run([system, *also], cases, trials, log, clock, budget_s, workers, wait_s, stop_if_hopeless, grade, progress, warn,
                  extend, shard)
        with log.reading() as file:
            reader = LogReader(file, log.path)
            if reader.header:
                continue_log(run, reader, header, taken)
        warn_of_torn(log_path, reader, warn)
        run_pending(run, reader, header, taken, signals)
    return run.counts()


def run_pending(run, reader, header, taken, signals):
    """Run what the log lacks; a new log gets its header, with what the server says of the model, once that is known."""
    begun = reader.header is not None
    run.plan_rest([] if begun or not taken else taken[0])
    if hasattr(run.progress, "begin"):
        run.progress.begin(reader.header or header, run.cases, run.verdicts, run.calls)
    crew = Crew(min(run.workers, len(run.pending)), signals)
    try:
        ready = bool(run.pending) and not run.budget_spent()
        facts = run.first_prepared(crew) if ready else None
        if not begun and (facts is not None or taken):
            begin_log(run, reader, header, taken, facts)
        elif begun and run.extend and ready:
            run.log.append([{"plan": {"trials": header["trials"], "at": utc_now()}}], at_once=True)
        if ready:
            run.go(crew)
            run.confirm(crew)
    except BaseException as error:
        run.stop(crew)
        error.counts = run.counts()
        raise
    finally:
        crew.dismiss()


# Show: the terminal

@dataclass(frozen=True)
class Terminal:
    """How a stream is written to: its width in columns, whether in colour, its glyph for each verdict, its lines if any."""
    width: int
    colour: bool
    glyphs: dict
    height: float = math.inf

    def paint(self, text: str, meaning: str) -> str:
        """The text in the colour of a verdict, where there is colour."""
        return f"\x1b[{COLOURS[meaning]}m{text}\x1b[0m" if self.colour and text else text

    def shade(self, text: str, share: float) -> str:
        """The text on a ground from red to green for a share from 0 to 1, where there is colour."""
        ground = SHADES[round(share * (len(SHADES) - 1))]
        return f"\x1b[30;48;5;{ground}m{text}\x1b[0m" if self.colour else text

    @property
    def ellipsis(self) -> str:
        """One character for what was cut."""
        return "…" if self.glyphs is VERDICT_GLYPHS else "~"

    def cut(self, text: str, width: int) -> str:
        """The text, printable, cut with an ellipsis and padded to a width in columns."""
        text = printable(text) if width > 0 else ""
        if columns(text) > width:
            while columns(text) > width - 1:
                text = text[:-1]
            text = text.rstrip("\u200d") + self.ellipsis
        return text + " " * (width - columns(text))


def columns(text: str) -> int:
    """How many terminal columns a printable text takes: wide characters two, marks and what is joined to an emoji none.

    "e\u0301" → 1, Thai "\u0e01\u0e34" → 1, a family of emoji joined by U+200D → 2."""
    if text.isascii():
        return len(text)
    width = last = 0
    joined = False
    for character in text:
        if character == "\ufe0f" and last == 1:        # asks for the emoji of a character that is also a sign
            width, last = width + 1, 2
        if joined or WIDTHLESS.match(character) or unicodedata.category(character) in ("Mn", "Me"):
            joined = character == "\u200d" and last == 2
        else:
            last = 2 if unicodedata.east_asian_width(character) in "WF" else 1
            width += last
    return width


def fold(texts, term, most=None) -> list:
    """The lines of texts made printable, broken at spaces to the terminal's width, each cut after most lines."""
    lines = []
    for text in texts:
        text = printable(text)
        if term.glyphs is ASCII_GLYPHS:
            text = text.encode("ascii", "backslashreplace").decode()
        indent = " " * (len(text) - len(text.lstrip(" ")) + 2)
        start, count, lead = 0, 0, ""
        while start < len(text):
            end, room = start, term.width - len(lead)
            while end < len(text) and columns(text[end]) <= room:
                room -= columns(text[end])
                end += 1
            count += 1
            if end < len(text) and count == most:
                lines.append(term.cut(lead + text[start:end + 1], term.width))
                break
            space = text.rfind(" ", start, end + 1)
            if end < len(text) and text[start:max(space, start)].strip():
                end = space
            lines.append(lead + text[start:end])
            start, lead = end + (text[end:end + 1] == " "), indent
    return lines


def obeys(stream) -> bool:
    """Whether a terminal understands escape sequences; a console of Windows does when it is told to, which is done here."""
    if not harness.ON_WINDOWS:
        return True
    try:
        import ctypes
        import msvcrt
        kernel, mode = ctypes.windll.kernel32, ctypes.c_ulong()
        console = ctypes.c_void_p(msvcrt.get_osfhandle(stream.fileno()))
        # 4: ENABLE_VIRTUAL_TERMINAL_PROCESSING, from Windows 10 on
        return bool(kernel.GetConsoleMode(console, ctypes.byref(mode)) and kernel.SetConsoleMode(console, mode.value | 4))
    except (ImportError, AttributeError, OSError, ValueError):
        return False


def wants_colour(stream, choice: str) -> bool:
    """Whether to colour: what --color says, else the environment, else whether the stream is a terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return os.environ.get("TERM") != "dumb" and bool(stream) and stream.isatty() and obeys(stream)


def terminal(stream, color: str = "auto") -> Terminal:
    """How to write to a stream: 80 columns unless it is a terminal of another width, ASCII where it has no glyphs."""
    try:
        "".join(VERDICT_GLYPHS.values()).encode(getattr(stream, "encoding", None) or "ascii")
        glyphs = VERDICT_GLYPHS
    except (UnicodeEncodeError, LookupError):
        glyphs = ASCII_GLYPHS
    width, height = 80, math.inf
    try:
        size = os.get_terminal_size(stream.fileno())
        width, height = size.columns or 80, size.lines or math.inf
    except (OSError, ValueError, AttributeError):
        pass        # no terminal: a file, a pipe, a test
    colour = wants_colour(stream, color)
    if colour:
        obeys(stream)       # where colour is wished for whatever the stream is
    return Terminal(max(width, 60), colour, glyphs, height)


# Show: words and amounts

def plural(count: int, noun: str) -> str:
    """A count with its noun: "1 case", "9 cases"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def span(interval, signed="") -> str:
    """An interval in words: "0.72 to 1.00"."""
    return f"{interval[0]:{signed}.2f} to {interval[1]:{signed}.2f}"


def in_columns(rows) -> list:
    """Lines of a label and other texts, each column as wide as its widest text."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    widths[0] = max(widths[0], 36)
    return ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths)).rstrip() for row in rows]


def legend(term, occurring) -> str:
    """What the glyphs of these verdicts mean."""
    return "  ".join(f"{term.paint(term.glyphs[verdict], verdict)} {VERDICT_WORDS[verdict]}"
                     for verdict in VERDICT_GLYPHS if verdict in occurring)


def format_counts(name: str, counts: dict, why: str, width=math.inf) -> str:
    """The counts line: "bayes: planned 90, already logged 54, ran 36, not run 0"; why it stopped goes on a line of
    its own where the width is too small."""
    line = (f"{printable(name)}: planned {counts['planned']}, already logged {counts['already_logged']}, "
            f"ran {counts['ran']}, not run {counts['not_run']}")
    gap = " " if len(line) + len(why) + 3 <= width else "\n  "
    return line + (f"{gap}({why})" if why else "")


def format_duration(seconds: float) -> str:
    """A time left, in its two largest units: "2 h 5 min", "3 min 20 s", "12 s"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def format_latency(seconds: float) -> str:
    """A latency in a unit that suits it: "0.44 s", "0.1 ms"."""
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1000:.3g} ms"


# Show: the grid

def case_note(verdicts, expects_rejection) -> str:
    """What to say of a case: "flaky", "unsteady" (it passed and never failed, but some trials are incomplete),
    "never", "no model call" or nothing."""
    passed, failed, incomplete = map(verdicts.count, ("pass", "fail", "incomplete"))
    if passed and failed + incomplete:
        return "flaky" if failed else "unsteady"
    if failed + incomplete:
        return "never"
    return "no model call" if expects_rejection else ""


def painted_cells(term, verdicts, room) -> str:
    """A glyph a trial, padded to the room; what does not fit is cut with an ellipsis."""
    shown_ones = verdicts if len(verdicts) <= room else verdicts[:room - 1]
    cells = "".join(term.paint(term.glyphs[verdict], verdict) for verdict in shown_ones)
    cut = len(shown_ones) < len(verdicts)
    return cells + term.ellipsis * cut + " " * (room - len(shown_ones) - cut)


@dataclass(frozen=True)
class GridShape:
    """The columns of a grid: names, cells, passed of those that ran, perhaps one more, a note."""
    term: Terminal
    label: str
    name_width: int
    room: int
    count_width: int
    column_width: int
    note_width: int

    def width(self) -> int:
        """The columns that a line takes at most."""
        extra = 2 + self.column_width if self.column_width else 0
        return self.name_width + self.room + self.count_width + 4 + extra + 2 + self.note_width

    def head(self, heading="") -> str:
        """The line above the cases."""
        return self._line("case", f"{self.label:<{self.room}}", "passed", heading, "")

    def row(self, name, verdicts, note, text="") -> str:
        """The line of a case."""
        ran = len(verdicts) - verdicts.count("not run")
        meaning = {"flaky": "incomplete", "unsteady": "incomplete", "never": "fail"}.get(note, "not run")
        return self._line(name, painted_cells(self.term, verdicts, self.room), f"{verdicts.count('pass')}/{ran}", text,
                          self.term.paint(note, meaning))

    def _line(self, name, cells, count, text, note):
        extra = f"  {text:>{self.column_width}}" if self.column_width else ""
        return f"{self.term.cut(name, self.name_width)}  {cells}  {count:>{self.count_width}}{extra}  {note}".rstrip()


def grid_shape(term, names, trials, counts, notes, column_width=0) -> GridShape:
    """The shape of a grid that holds these names, counts and notes; where there is no room, names and cells give way."""
    label = "trial 0" if trials == 1 else f"trial 0-{trials - 1}"
    count_width = max(map(len, ["passed", *counts]))
    note_width = max(map(len, notes))
    tail = 2 + count_width + (2 + column_width if column_width else 0) + (2 + note_width if note_width else 0)
    longest = max(columns(printable(name)) for name in [*names, "case"])
    name_width = min(longest, max(8, term.width - tail - 2 - max(len(label), min(trials, 20))))
    room = max(len(label), min(trials, term.width - tail - 2 - name_width))
    return GridShape(term, label, name_width, room, count_width, column_width, note_width)


def how_often(verdicts) -> str:
    """How often a case passed in the trials that ran: "sometimes", "never", "always"; "not run" where none did."""
    return harness.how_often(verdicts.count("pass"), len(verdicts) - verdicts.count("not run"))


def telling_cases(by_case, most=MOST_ROWS) -> tuple:
    """(the cases that a grid shows, what the others came to): of many those that are not steady, then the never passed."""
    if len(by_case) <= most:
        return by_case, ""
    often = {case: how_often(verdicts) for case, verdicts in by_case.items()}
    telling = set([case for word in ("sometimes", "never") for case in often if often[case] == word][:most])
    rest = Counter(word for case, word in often.items() if case not in telling).most_common()
    told = ", ".join(f"{count} {word if word == 'not run' else f'passed {word}'}" for word, count in rest)
    return ({case: verdicts for case, verdicts in by_case.items() if case in telling},
            f"not shown, of {len(by_case)} cases: {told}")


def grid_lines(by_case: dict, refuses, term: Terminal, column=None) -> list:
    """The lines of the grid of {case_id: [verdict of each trial]}; refuses are the cases that cost no model call."""
    shown, rest = telling_cases(by_case)
    if not shown:
        return [rest]
    notes = {case: case_note(verdicts, case in refuses) for case, verdicts in shown.items()}
    counts = [f"{verdicts.count('pass')}/{len(verdicts) - verdicts.count('not run')}" for verdicts in shown.values()]
    heading, texts = column or ("", {})
    shape = grid_shape(term, shown, max(map(len, shown.values())), counts, notes.values(),
                       max([len(heading), *map(len, texts.values())]))
    rows = [shape.row(case, verdicts, notes[case], texts.get(case, "")) for case, verdicts in shown.items()]
    return [shape.head(heading), *rows, *[rest] * bool(rest), legend(term, set(chain(*shown.values())))]


# Show: the headline

def steady_words(figures) -> str:
    """How many cases passed always, sometimes and never: "9 cases: 4 always, 5 sometimes, 0 never passed"."""
    often, free = figures["steadiness"], figures["cases"] - figures["model_calls"]["cases"]
    told = f"{often['always']} always, {often['sometimes']} sometimes, {often['never']} never passed"
    told += f", {often['not run']} not run" if often["not run"] else ""
    told += f"; {free} need{'s' * (free == 1)} no model call" if free else ""
    return f"{plural(figures['cases'], 'case')}: {told}"


def rates(figures) -> list:
    """(what for, passed, trials, 95 % interval or None, why none) a row, model calls before all cases; [] for a stopped run.

    Where some cases need no model call, the rows are of the others, and a last one tells what all come to."""
    rate, calls, trials = figures["pass_rate"], figures["model_calls"], figures["trials_per_case"]
    if not rate:
        return []
    won, cases = sum(figures["passed_per_trial"]), figures["cases"]
    some = 0 < calls["cases"] < cases
    first, passed, count = (calls, calls["pass"], calls["cases"]) if some else (rate, won, cases)
    alone = "none: one trial a case"
    like, these = ("it", "this case") if count == 1 else ("these", f"these {count} cases")
    rows = [(f"{these}, new trials", passed, count * trials, first["same_cases"], alone),
            (f"new cases like {like}", passed, count * trials, first["new_cases"], "none: one case")]
    if some:
        free = cases - count
        told = f"with the {plural(free, 'case')} that need{'s' * (free == 1)} none"
        rows.append((told, won, cases * trials, rate["same_cases"], alone))
    return rows


def outline(by_case: dict, refused) -> dict:
    """What a headline tells of {case_id: [verdict of each trial]}, some of which must be refused."""
    return harness.outline([[verdict == "pass" for verdict in verdicts] for verdicts in by_case.values()],
                           [verdicts.count("not run") for verdicts in by_case.values()], [case in refused for case in by_case])


def one_trial_words(figures) -> str:
    """What a single trial would have said; "" where there was only one."""
    each = figures["passed_per_trial"] or []
    reach = f"{min(each)} to {max(each)}" if each and min(each) < max(each) else f"{min(each, default=0)}"
    return f"one trial alone would have said {reach} of {figures['cases']}" if len(each) > 1 else ""


def rate_words(figures) -> str:
    """What passed, of all trials or of those that reached a model: "passed 53 of 70 model calls: 0.757"."""
    _, won, of, *_ = rates(figures)[0]
    calls = " model calls" if of < figures["cases"] * figures["trials_per_case"] else ""
    return f"passed {won} of {of}{calls}: {won / of:.3f}"


def headline(figures) -> list:
    """The lines that a run ends with and a report begins with: how steady the cases are, the pass rate with its
    intervals, what one trial alone would have said."""
    rows, lines = rates(figures), [steady_words(figures)]
    if rows:
        table = [(rate_words(figures), "95 % interval")]
        for words, won, of, interval, why in rows:
            told = f": {won} of {of}, {won / of:.3f}" if of > rows[0][2] else ""
            table.append((f"  {words}{told}", span(interval) if interval else why))
        lines += in_columns(table)
    return lines + [f"  {text}" for text in [one_trial_words(figures)] if text]


# Show: while trials run

class Painter:
    """Lines at the foot of a terminal that are rewritten in place; the cursor rests at the start of the last one."""

    def __init__(self, stream):
        self.stream, self.lines, self.left = stream, [], False
        self.lock = threading.RLock()       # a system may print from any thread
        # Only where the terminal obeys can the cursor go up; elsewhere the last line alone is rewritten.
        self.moves = obeys(stream) and (harness.ON_WINDOWS or os.environ.get("TERM", "dumb") != "dumb")

    def size(self) -> tuple:
        """(columns, lines) of the terminal as it is now."""
        width = height = 0
        with contextlib.suppress(OSError, ValueError):
            width, height = os.get_terminal_size(self.stream.fileno())
        return width or 80, height or 24        # one that does not know its size says 0

    def draw(self, lines) -> None:
        """Show these lines in the place of those before; each has to fit into the terminal's width."""
        with self.lock:
            self._draw(lines)

    def _draw(self, lines):
        if not self.moves:
            return self._rewrite(lines[-1])
        if len(lines) != len(self.lines) or self.size() != self.drawn_at:
            self._write(self._clearing() + "\n".join(lines) + "\r")
        else:
            below = range(len(lines) - 1, -1, -1)
            self._write("".join(f"\x1b[{rows}A" * bool(rows) + line + "\x1b[K\r" + "\n" * rows
                                for rows, line, was in zip(below, lines, self.lines) if line != was))
        self.lines, self.drawn_at = list(lines), self.size()

    def erase(self) -> None:
        """Leave the screen as if nothing had been drawn."""
        with self.lock:
            if self.lines:
                self._write(self._clearing()) if self.moves else self._rewrite("")
                self.lines = []

    def forget(self) -> None:
        """Leave what stands there: something else has written below it."""
        self.lines = []

    def _rewrite(self, line):
        rest = " " * (sum(map(columns, self.lines)) - columns(line))
        self._write("\r" + line + rest + "\r" * (not line))
        self.lines = [line] if line else []

    def _clearing(self):
        width = self.size()[0]
        # A terminal that was made narrower has wrapped what it shows.
        above = sum(max(1, -(-columns(PAINT.sub("", line)) // width)) for line in self.lines[:-1])
        # Row by row: some terminals keep what stood on a screen that is cleared from its first line on.
        return "\r\x1b[J" + "\x1b[1A\x1b[2K" * above if self.lines else ""

    def _write(self, text):
        if self.left:
            return
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):
            self.left = True        # whoever was reading has left; the run goes on


class Beside:
    """In the place of stdout or stderr while lines are rewritten below: what a system prints is kept above them."""

    def __init__(self, painter, stream):
        self.painter, self.stream, self.begun = painter, stream, ""

    def write(self, text):
        with self.painter.lock:
            whole, end, self.begun = (self.begun + text).rpartition("\n")
            if end:
                self.painter.erase()
                self.stream.write(whole + end)
                self.stream.flush()
        return len(text)

    def flush(self):
        """A line that has only begun waits for its end."""

    def __getattr__(self, name):
        return getattr(self.stream, name)


class Progress:
    """What stderr shows while trials run: on a terminal with room the grid as it fills, on any other one line,
    rewritten; elsewhere a plain line a minute, a CI log's pulse."""

    def __init__(self, name, stream=None, clock=time.monotonic, color="auto"):
        self.name, self.stream, self.clock, self.color = printable(name), stream or sys.stderr, clock, color
        self.live = bool(self.stream) and self.stream.isatty()
        self.painter = Painter(self.stream) if self.live else None
        self.every_s = 0.1 if self.live else 60
        self.last = clock() - (self.every_s if self.live else 0)
        self.noted, self.status, self.rate = -math.inf, "", None
        self.called_s, self.passed = [], 0      # the latency of each model call
        self.header, self.refuses, self.verdicts, self.calls = {}, set(), {}, {}
        self.shape, self.rows, self.changed = None, {}, set()

    def begin(self, header, cases, verdicts, calls):
        """Learn the log's plan, and what goes on changing: each trial's verdict, what the model calls ended as."""
        self.header, self.verdicts, self.calls = header, verdicts, calls
        self.refuses = {case["id"] for case in cases if "expect_rejection" in case}
        self.passed, self.changed = sum(found.count("pass") for found in verdicts.values()), set(verdicts)

    def __call__(self, counts, elapsed_s, row, verdict):
        if not is_refusal(row):
            self.called_s.append(row["latency_s"])
        self.passed += verdict == "pass"
        self.changed.add(row["case_id"])
        now = self.clock()
        self.rate = counts, elapsed_s, now
        if now - self.last >= self.every_s:
            self.last = now
            self._show(*self._rate_texts(now))

    def tick(self):
        """Show on a terminal what has changed while no trial ended: its size, the time."""
        if self.live and self.rate:
            self._show(*self._rate_texts(self.clock()))

    def note(self, text, urgent):
        """Say what happens while no trial ends: on a terminal at once, elsewhere what is urgent, once a minute."""
        if self.live or urgent and self.clock() - self.noted >= self.every_s:
            self.noted, self.rate = self.clock(), None
            self._show(f"{self.name}: {text}")

    def warn(self, text):
        """Say a warning on lines of its own, above what is rewritten."""
        self.erase()
        warn(text)
        if self.status and self.live:
            self._show(self.status)

    @contextlib.contextmanager
    def beside(self):
        """While this lasts, what a system prints stays above what is rewritten."""
        streams = sys.stdout, sys.stderr
        ours = [Beside(self.painter, stream) if self.live and stream and stream.isatty() else stream for stream in streams]
        sys.stdout, sys.stderr = ours
        try:
            yield
        finally:
            sys.stdout, sys.stderr = streams
            for stream in ours:
                if isinstance(stream, Beside) and stream.begun:
                    stream.write("\n")

    def erase(self):
        if self.live:
            self.painter.erase()

    def forget(self):
        """Begin anew below what stands there, after the terminal belonged to somebody else."""
        if self.live:
            self.painter.forget()

    def _rate_texts(self, now):
        """How far the run is, and shorter ways to say it."""
        counts, elapsed_s, since = self.rate
        rate = counts["ran"] / max(elapsed_s + now - since, 1e-9)
        done = f"{counts['already_logged'] + counts['ran']} of {counts['planned']}"
        passed = f"{self.passed} passed, " if self.live and self.verdicts else ""
        left = format_duration(counts["not_run"] / rate)
        return (f"{self.name}: {done} trials, {passed}{rate:.3g} a second, {left} left",
                f"{self.name}: {done} trials, {left} left", f"{done}, {passed}{left} left", f"{done}, {left} left")

    def _show(self, status, *shorter):
        if self.live:
            width, height = self.painter.size()
            fitting = (text for text in (status, *shorter) if columns(text) < width)
            term = Terminal(width, False, terminal(self.stream).glyphs)
            self.status = next(fitting, None) or term.cut(status, width - 1).rstrip()
            self.painter.draw([*self._grid(width, height), self.status])
            return
        if self.stream:
            with contextlib.suppress(OSError, ValueError):      # whoever was reading has left; the run goes on
                self.stream.write(status + "\n")
                self.stream.flush()

    def _grid(self, width, height):
        """The lines of the grid as it is now; none where there is no room for all of it."""
        if not self.verdicts or not self.painter.moves or len(self.verdicts) + 5 > height:
            return []
        if self.shape is None:
            term = terminal(self.stream, self.color)
            trials = max(map(len, self.verdicts.values()))
            self.shape = grid_shape(replace(term, width=math.inf), self.verdicts, trials,
                                    [f"{trials}/{trials}"], ["no model call" if self.refuses else "unsteady"])
            self.key = legend(term, VERDICT_GLYPHS)
        if self.shape.width() >= width:
            return []
        for case in self.changed:
            verdicts = self.verdicts[case]
            note = case_note(verdicts, case in self.refuses)
            # That a case never passes is for the last trial to say.
            note = "" if note == "never" and "not run" in verdicts else note
            self.rows[case] = self.shape.row(case, verdicts, note)
        self.changed.clear()
        return [self.shape.head(), *(self.rows[case] for case in self.verdicts), self.key]


# Command: names of logs, and commands to give next

def file_part(name: str) -> str:
    """A name as a part of a file's name, safe on every file system: "llama3.2:3b" → "llama3.2-3b"."""
    plain = re.sub(r"[^a-z0-9._-]", "-", name.casefold())[:80].strip(".-") or "system"
    ordinary = re.fullmatch(r"[a-z0-9._-]+(:[a-z0-9._-]+)?", name) and plain == name.replace(":", "-")
    device = re.fullmatch(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", plain)
    return plain if ordinary and not device else f"{plain}-{harness.sha256(name)[:8]}"


def default_log(name: str, task: str = "", label: str = "", subset=(), shard=None) -> Path:
    """The log of a system: "llama3.2:3b" → runs/llama3.2-3b.jsonl, of another task runs/TASK-MODEL-LABEL.jsonl; that of
    some of the cases has a + in its name, which no other has; that of a part of the plan ends in "-2-of-4"."""
    parts = "-".join(file_part(part) for part in (task, name, label) if part)
    some = f"+{file_part('-'.join(word.lstrip('-') for word in subset))}" if subset else ""
    part, whole = "-{part}-of-{of}".format(**shard) if shard else "", f"{parts}{some}"
    if len(whole) > MOST_NAME:
        whole = f"{whole[:MOST_NAME - 9]}-{harness.sha256(whole)[:8]}"
    return Path("runs") / f"{whole}{part}.jsonl"


def without(words, *options) -> list:
    """The words of a command without some options that take a value, and without their values."""
    words, kept = list(words), []
    while words:
        word = words.pop(0)
        if word in options:
            words[:1] = []
        elif word.partition("=")[0] not in options:
            kept.append(word)
    return kept


def resume_command(system, path="") -> str:
    """The command line that resumes the log of a reported system, as its header tells it, as text; "" where it does not.

    A log may be hostile: nothing of it is run, and what a terminal would obey is escaped."""
    told = system.get("provenance") or {}
    if not isinstance(told.get("command"), list):
        return ""
    words = [word for word in told["command"][1:] if isinstance(word, str)]
    if is_shard(told.get("shard")):
        words = [*without(words, "--shard"), "--shard", "{part}/{of}".format(**told["shard"])]
    if told.get("extended"):
        words = [*without(words, "--trials"), "--trials", str(system["trials_per_case"])]
    if path:
        task = told.get("task", {}).get("name")
        usual = default_log(system["system"]["name"], "" if task == TRIAGE else str(task), told.get("label", ""),
                            told["subset"]["words"] if is_subset(told.get("subset")) else (),
                            told["shard"] if is_shard(told.get("shard")) else None)
        words = without(words, "--log") + ([] if Path(path) == usual else ["--log", harness.as_word(path)])
    return harness.in_shell(harness.PYTHON, harness.beside_caller("bench.py"), *words)


def report_command(args, logs, header, regraded=False) -> str:
    """The command that reports logs, with the task and the cases where they do not hold them."""
    named = harness.unusual(args) if "cases" not in header else \
        ["--task", args.task] if args.task != "triage_task" and not harness.is_task_file(args.task) else []
    words = [*map(harness.as_word, logs), *named, *(["--regrade"] if regraded else [])]
    return harness.in_shell(harness.PYTHON, harness.beside_caller("report.py"), *words)


def own_command(args, *more) -> str:
    """The command line once more without its looking and choosing of cases, and with more words."""
    words = without([word for word in args.words if word not in ("--try", "--check")], "--case", "--class", "--first", "--trials")
    return harness.in_shell(harness.PYTHON, sys.argv[0], *words, *more)


def other_trials(args, logged) -> str:
    """What to say of a log of another number of trials a case: how it grows, or goes on as it is; none is shortened."""
    words = [word for word in without(args.words, "--trials") if word != "--extend"]
    trials = args.trials if logged < args.trials else logged
    words += ["--trials", str(trials), *["--extend"] * (trials > logged)]
    command = harness.in_shell(harness.PYTHON, sys.argv[0], *words)
    told = f"{args.log}: its plan is {logged} trials a case, not {args.trials}"
    if trials == logged:
        return f"{told}, and no log is shortened; to resume it: {command}"
    return f"{told}; --trials {logged} resumes it; to go on to {trials} in the same file: {command}"


# Command: values of options

def option_pair(text: str) -> tuple:
    """NAME=VALUE as (name, value), both text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def counted(environment, name) -> int:
    """The whole number that a variable of a scheduler holds."""
    text = environment.get(name, "")
    if not re.fullmatch("[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"the variable {name} is {text!r}, not a number: give I/N")
    return int(text)


def array_part(environment, of) -> tuple:
    """(part, of) of a task of a Slurm array, which runs from MIN to MAX in steps."""
    index, first, last, count = (counted(environment, f"SLURM_ARRAY_TASK_{name}") for name in ("ID", "MIN", "MAX", "COUNT"))
    step = counted({"SLURM_ARRAY_TASK_STEP": "1", **environment}, "SLURM_ARRAY_TASK_STEP") or 1
    whole = (last - first) // step + 1 == count and (index - first) % step == 0
    if not whole or count != (of or count) or of is None and count == 1:
        wanted = f"the {of} of auto/{of}" if of else "one range of two or more, such as --array=1-8"
        raise argparse.ArgumentTypeError(f"the tasks of this array are not {wanted}, so it tells no part: give I/N, as for a "
                                         "task that is to run again")
    return (index - first) // step + 1, count


def scheduled(of, environment) -> tuple:
    """(part, of) of what a scheduler's variables say; Slurm's array tells how many there are, the others do not."""
    found = [name for name in SCHEDULERS if environment.get(name)]
    if len(found) != 1:
        told = f"{' and '.join(found)} are both set" if found else f"none of {', '.join(SCHEDULERS)} is set"
        raise argparse.ArgumentTypeError(f"{told}: give I/N")
    if found == ["SLURM_ARRAY_TASK_ID"]:
        return array_part(environment, of)
    if of is None:
        raise argparse.ArgumentTypeError(f"{found[0]} does not tell how many there are: give auto/N")
    return counted(environment, found[0]) + (found[0] == "JOB_COMPLETION_INDEX"), of      # that one counts from 0


def shard_text(text: str) -> dict:
    """{part, of} of "2/8", or of what the scheduler says for "auto" and "auto/8"."""
    found = re.fullmatch("(auto|[0-9]{1,9})(?:/([0-9]{1,9}))?", text)
    if not found or found[1] != "auto" and not found[2]:
        raise argparse.ArgumentTypeError(f"{text!r} is none of I/N, auto and auto/N")
    of = int(found[2]) if found[2] else None
    part, of = scheduled(of, os.environ) if found[1] == "auto" else (int(found[1]), of)
    if not is_shard({"part": part, "of": of}):
        raise argparse.ArgumentTypeError(f"{text!r} is part {part} of {of}: parts go from 1 to {of}")
    return {"part": part, "of": of}


def top_count(text: str) -> int:
    """How many likely tokens are asked for, 0 to 20, of a --logprobs; usage error otherwise."""
    if not re.fullmatch("[0-9]{1,2}", text, re.ASCII) or int(text) > 20:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 20")
    return int(text)


def label_text(text: str) -> str:
    """A label: a short text of one line."""
    text = text.strip()
    if not text.isprintable() or not 0 < len(text) <= MOST_LABEL:
        raise argparse.ArgumentTypeError(f"{text!r} is not one line of 1 to {MOST_LABEL} characters")
    return text


def trial_number(text: str) -> int:
    """An option's value as the number of a trial, from 0."""
    return harness.whole_number(text) if text.strip("0") else int(text or "x")


# Command: options

def add_what(add) -> None:
    """The options that say what is measured, and on what."""
    add("what", nargs="?", metavar="TASK.json",
        help="a task of your own as data; without one the tool's own demonstration, triage_task, runs")
    add("--model", action="append", default=[], metavar="TAG",
        help="an Ollama model, by its tag, else :latest; repeat it to run and compare several")
    add("--url", metavar="URL", help="with --model: ask the server with OpenAI's chat completions at http://HOST:PORT/v1")
    add("--key-env", metavar="VAR", help="with --url: the environment variable that holds the server's key")
    add("--command", metavar="ARGV", help="any program: the message is its standard input, its output the reply")
    add("--shell", action="store_true", help="with --command: have it read by the shell")
    add("--workspace", metavar="DIR", help="with --command: run each trial in a fresh copy of this folder")
    add("--system", metavar="MODULE:NAME", help="any system (--model TAG is short for model_triage:TAG; default for "
                                                "triage_task: model_triage:bayes)")
    add("--task", metavar="TASK", help="the same as TASK.json, or a module with checks (default: triage_task)")
    add("--cases", metavar="FILE", help="the cases: .json, .jsonl or .csv (default: the task's own)")
    add("--trials", type=harness.whole_number, metavar="K", help="trials a case (default: 10)")
    add("--extend", action="store_true", help="with more --trials than the log has planned: go on in it up to these")
    add("--prompt", metavar="FILE", help="ask with this user message in place of the task's; {input} is the case's input")
    add("--system-prompt", metavar="FILE", help="ask with this system message in place of the task's")


def add_choice(add) -> None:
    """The options that choose cases, and those that look before a run."""
    add("--case", action="append", default=[], metavar="ID",
        help="only this case, or those that a pattern such as 'late-*' names; repeatable")
    add("--class", dest="kind", metavar="NAME", help="only the cases of this class")
    add("--first", type=harness.whole_number, metavar="N", help="only the first N of them")
    add("--check", action="store_true", help="only see that all is sound, and show the first case's request; asks no server")
    add("--list", action="store_true", help="only say which systems and which models of the server there are, and their logs")
    add("--try", dest="attempt", action="store_true", help="only ask each case once (or --trials times) and show what was sent, "
                                                           "what came back and what became of it; writes no log")


    add("--rerun", type=Path, metavar="LOG", help="run logged trials again, with --case, --class or those below, and tell "
                                                  "whether the outputs are the same; writes no log")
    add("--trial", type=trial_number, metavar="T", help="with --rerun: only trial T of each case, from 0")
    add("--sample", type=harness.whole_number, metavar="N", help="with --rerun: only N of them, drawn at random")
    add("--verbose", action="store_true", help="with --rerun: show what was sent and what came back")


def add_model(add) -> None:
    """The options of an Ollama model."""
    add("--host", action="append", default=[], metavar="ADDRESS",
        help="the server (default: OLLAMA_HOST); repeat it, or list several in OLLAMA_HOST, to use several at once")
    add("--option", type=option_pair, action="append", default=[], metavar="NAME=VALUE",
        help="a sampling option, such as temperature=0.2; repeatable")
    add("--think", choices=("off", "on", "low", "medium", "high", "max"),
        help="let the model think first (default: off)")
    add("--timeout-s", type=harness.seconds, metavar="S", help="the deadline of one trial (default: 120)")
    add("--logprobs", type=top_count, nargs="?", const=5, metavar="K",
        help="keep how likely each token was, and the K likeliest in its place (0 to 20, default: 5)")
    add("--keep-alive", metavar="TIME", help="how long the server keeps the model after a call (default: 30m)")


def add_run(add) -> None:
    """The options that say how trials are run."""
    add("--budget-s", type=harness.seconds, metavar="S", help="start no trial after S seconds")
    add("--shard", type=shard_text, metavar="I/N",
        help="run the I-th of N parts, each whole rounds, into a log of its own; auto: as Slurm's array tells; auto/N: "
             "as a Kubernetes Indexed Job or GNU parallel tells")
    add("--workers", type=harness.whole_number, metavar="N", help="trials in flight at once (default: 1 for each server)")
    add("--wait-s", type=harness.seconds, default=0, metavar="N",
        help="wait up to N seconds for a server that is away (default: 0)")
    add("--stop-if-hopeless", action="store_true",
        help="stop when the first 5 model calls end alike and none can be graded")
    add("--color", choices=("auto", "always", "never"), default="auto", help="colour (default: auto)")


def add_log(add) -> None:
    """The options of the log."""
    add("--log", type=Path, action="append", default=[], metavar="LOG",
        help="the log to begin or resume (default: runs/MODEL.jsonl, runs/TASK-MODEL.jsonl); with --convert repeatable: "
             "logs of one plan, such as its parts, are merged")
    add("--label", type=label_text, metavar="NAME",
        help="name a variant: it is in every report's title, and in the log's name (runs/MODEL-NAME.jsonl)")
    add("--from", dest="sources", type=Path, action="append", default=[], metavar="OLD",
        help="take over the trials that this log has for the plan; repeatable")
    add("--redo-unanswered", action="store_true", help="with --from: run trials without any reply of the model again")
    add("--hardware", metavar="TEXT", help="a note on the machine, kept in the log's header")
    add("--sync-every", type=harness.whole_number, default=1, metavar="N",
        help="sync the log to the disk after every N trials, which a power cut may then take (default: 1)")
    add("--no-lock", action="store_true", help="take no lock on the log: see yourself that nothing else writes it")
    add("--convert", type=Path, metavar="RECORDING", help="run nothing: write the log as a recording")


def hint_of(option: str, words) -> str:
    """What to give in place of an option that is none: "--temperature 0" → "; give it as --option temperature=0"."""
    name = option.lstrip("-").replace("-", "_")
    if not option.startswith("-"):
        return "; one task is run at a time"
    if option in SHORT:
        return f"; did you mean {SHORT[option]}?"
    if name in harness.import_named("model_triage", "system").OPTIONS:
        given = next((rest or after for word, after in zip(words, [*words[1:], ""])
                      for head, _, rest in [word.partition("=")] if head == option), "")
        return f"; give it as --option {name}={given if given[:1] not in ('', '-') else 'VALUE'}"
    return ""


# Command: what does not go together

def misplaced(word: str) -> str:
    """What to say of a first word that is no task file."""
    kind = Path(word).suffix.lower()
    if os.path.isfile(f"{word}.json"):
        return f"did you mean {word}.json?"
    if kind == ".jsonl":
        return f"python3 report.py {word} reports a log, --log {word} resumes it, --cases {word} reads cases"
    if kind == ".csv":
        return f"--cases {word} reads cases"
    return f"--task {Path(word).stem} names a module with checks" if kind == ".py" else f"--model {word} measures a model"


def given(args, *names) -> list:
    """Those of these options that the command line gives, as it spells them."""
    values = {**vars(args), "try": args.attempt, "from": args.sources}
    return [f"--{name}" for name in names if values[name] or values[name] == 0 and values[name] is not False]


def check_ways(parser, args) -> None:
    """Usage errors for what does something else than a run."""
    needing, beside = given(args, "trial", "sample", "verbose"), given(args, "log", "from", "trials")
    ways = given(args, "list", "check", "try", "convert", "rerun")
    if needing and not args.rerun:
        parser.error(f"{needing[0]} needs --rerun: the log whose trials run again")
    if args.rerun and beside:
        parser.error(f"argument {beside[0]}: not allowed with --rerun, which runs trials of its log and writes nothing")
    if args.list:
        ways += [*["TASK.json"] * bool(args.what), *given(args, "model", "system", "command", "url", "log", "from")]
    if len(ways) > 1:
        parser.error(f"argument {ways[1]}: not allowed with argument {ways[0]}")


def check_systems(parser, args) -> None:
    """Usage errors for what says which system runs, or which systems one after the other."""
    named, needing = given(args, "model", "system", "command"), given(args, "shell", "workspace")
    if len(named) > 1:
        parser.error(f"argument {named[1]}: not allowed with argument {named[0]}")
    if needing and args.command is None:
        parser.error(f"{needing[0]} needs --command: the program to run")
    if args.url is not None and not args.model:
        parser.error("--url needs --model: the name to ask the server for")
    if args.key_env is not None and args.url is None:
        parser.error("--key-env needs --url: the server that asks for a key")
    alone = given(args, "log", "from", "convert", "try", "check", "rerun")
    if len(args.model) > 1 and alone:
        parser.error(f"argument {alone[0]}: not allowed with more than one --model")
    if len(args.log) > 1 and not args.convert:
        parser.error("argument --log: only --convert takes several logs; --from merges logs into a new one")


def checked_args(parser, argv):
    """The parsed arguments; usage errors for those that do not go together."""
    args = parser.parse_args(argv)
    args.words = sys.argv[1:] if argv is None else list(argv)
    if args.workers is not None and args.workers > MOST_WORKERS:
        parser.error(f"argument --workers: {args.workers} is more than {MOST_WORKERS}")
    if args.sync_every > harness.MAX_TRIALS:
        parser.error(f"argument --sync-every: {args.sync_every} is more than {harness.MAX_TRIALS}")
    if args.redo_unanswered and not args.sources:
        parser.error("--redo-unanswered needs --from: the log whose unanswered trials are to run again")
    if args.extend and args.sources:
        parser.error("--extend goes on in a log, --from begins a new one: leave one of them out")
    if args.what is not None:
        if args.task is not None:
            parser.error(f"argument --task: the task is given twice, as {args.what} and as {args.task}")
        if not harness.is_task_file(args.what):
            parser.error(f"{args.what} is no task file (their names end in .json): {misplaced(args.what)}")
        args.task = args.what
    args.task_given, args.task = args.task, args.task or "triage_task"
    check_ways(parser, args)
    args.trials = args.trials or (1 if args.attempt else 10)
    if args.shard and args.shard["of"] > args.trials:
        parser.error(f"argument --shard: {args.shard['of']} parts of {args.trials} trials a case leave parts without any")
    check_systems(parser, args)
    args.logs, args.log = args.log, args.log[0] if args.log else None
    args.models = args.model if args.url is not None else [
        f"model_triage:{tag if ':' in tag.rpartition('/')[2] else f'{tag}:latest'}" for tag in args.model]
    if len(dict(args.option)) < len(args.option):
        parser.error("argument --option: an option is given twice")
    return args


def parse_args(argv):
    words = sys.argv[1:] if argv is None else list(argv)
    parser = harness.Parser(description=__doc__, usage="python3 bench.py [TASK.json] [--model TAG] [OPTIONS]",
                            hint=lambda option: hint_of(option, words))
    for title, add_group in (("what is measured", add_what), ("some of it, or only to look", add_choice),
                             ("an Ollama model's settings", add_model),
                             ("the run", add_run), ("the log", add_log)):
        add_group(parser.add_argument_group(title).add_argument)
    return checked_args(parser, argv)


# Command: the systems

def warn(text: str) -> None:
    if sys.stderr:
        print(f"warning: {printable(text)}", file=sys.stderr)


def is_own_set(task, case_set) -> bool:
    """Whether a case set is that of the triage task, for which its prompt and the embedded sampler are made."""
    return getattr(task, "__name__", "") == "triage_task" and case_set["name"] == TRIAGE and \
        case_set["sha256"] == harness.load_cases(harness.DEFAULT_CASES, task)["sha256"]


def asked_of(args, system, task, case_set):
    """What a model is to be asked: by the task, or for the triage task by the system, with the prompts of the command
    line; None where nothing says it. CaseError for placeholders that do not go with the cases."""
    texts = [None if path is None else harness.read_prompt(path) for path in (args.prompt, args.system_prompt)]
    own = harness.has(system, "any_task") or is_own_set(task, case_set)
    asked = getattr(task, "asked", None) or (system.asked if own else None)
    if asked is None and texts[0] is not None:
        asked = {"messages": [], "schema": None, "options": {}, "think": None}
    if asked is None or texts == [None, None]:
        return asked
    asked = harness.with_prompt(asked, *texts)
    problems = harness.asked_problems(asked, case_set["cases"])
    if problems:
        raise harness.CaseError("\n".join(f"{args.prompt or args.system_prompt}: {problem}" for problem in problems))
    return asked


def named_system(args, task, case_set):
    """The system that the command line names; RunError for one that does not go with the cases."""
    if args.system is None and args.command is None and args.check and (args.prompt or getattr(task, "asked", None)):
        args.system = ANY_MODEL     # what is asked can be seen without a model
    if args.command is not None:
        system = harness.import_named("model_triage", "system").Command(args.command, args.shell, args.workspace)
    elif args.url is not None:
        system = harness.import_named("model_triage", "system").UrlChat(args.url, args.system, args.key_env)
    elif args.system is None and isinstance(task, harness.DataTask):
        raise harness.UsageError(f"give what {args.task} is for: --model TAG, or a program with --command ARGV")
    else:
        system = harness.load_system(args.system or "model_triage:bayes", case_set)
    files = [case["id"] for case in case_set["cases"] if any(key in case for key in ("files", "hidden", "test"))]
    if (files or "test" in (getattr(task, "asked", None) or {})) and not (args.check or harness.has(system, "uses_files")):
        raise RunError(f"{f'case {files[0]} has files or a test' if files else f'task {args.task} has a test'}, which only "
                       "a program works with: give one with --command ARGV")
    return system


def asking_system(args, task, case_set):
    """The system of the command line, which asks what the task asks; RunError, before any request, where none does."""
    system = named_system(args, task, case_set)
    cases = f"the cases of {args.cases}" if args.cases else f"task {args.task}"
    if harness.has(system, "asking"):
        asked = asked_of(args, system, task, case_set)
        if asked is None:
            raise RunError(f"nothing says what {system.name} is to be asked for {cases}, and the triage prompt is for "
                           "triage_task and its own cases alone: give a task file (bench.py TASK.json), or --prompt FILE")
        return call_hook(system, "asking", asked)
    if args.prompt or args.system_prompt:
        raise RunError(f"{system.name} takes no prompt: --prompt and --system-prompt are for models")
    if getattr(system, "only_triage", False) is True and not is_own_set(task, case_set):
        raise RunError(f"{system.name} knows triage_task and its own cases alone, not {cases}: give a model with "
                       "--model TAG, or your own system with --system MODULE:NAME")
    return system


def chosen_system(args, task, case_set):
    """The system of the command line, with its options set."""
    system = asking_system(args, task, case_set)
    kept = [] if args.keep_alive is None else [args.keep_alive]
    if args.option or args.think or args.timeout_s is not None or kept:
        if not harness.has(system, "configured"):
            raise RunError(f"{system.name} has no options to set: --option, --think, --timeout-s and --keep-alive "
                           "are for Ollama models")
        try:
            system = call_hook(system, "configured", dict(args.option), args.think, args.timeout_s, *kept)
        except RunError as error:
            named = re.sub("^(timeout_s|think|keep_alive) ", lambda found: f"--{found[1].replace('_', '-')} ", str(error))
            raise harness.UsageError(named if named.startswith("--") else f"argument --option: {error}") from None
    if args.logprobs is not None:
        if not harness.has(system, "with_logprobs"):
            raise RunError(f"{system.name} tells no log-probabilities: --logprobs is for models and model_triage:bayes")
        system = call_hook(system, "with_logprobs", args.logprobs)
    options = system.options if harness.has(system, "options") else None
    if isinstance(options, dict) and options.get("temperature") == 0 and args.trials > 1:
        warn("the temperature is 0: the seed changes nothing, so all trials of a case are one trial; "
             "--option temperature=1")
    return system


def at_servers(args, system):
    """The system at the first of its servers; the args learn of the others, and of as many workers as there are."""
    args.also = []
    if harness.has(system, "at"):
        system, *args.also = call_hook(system, "at", args.host)
    elif args.host:
        raise harness.UsageError(f"argument --host: {system.name} is no model of an Ollama server")
    servers = 1 + len(args.also)
    args.workers = args.workers or servers
    if args.workers < servers:
        raise harness.UsageError(f"argument --workers: {args.workers} for {servers} servers leave some without work: give "
                                 f"{servers} or more")
    return system


# Command: some of the cases

def choice(args) -> list:
    """The options that choose cases, as words: ["--case", "late-*", "--first", "2"]."""
    given = [*(("--case", pattern) for pattern in args.case), ("--class", args.kind), ("--first", args.first)]
    return [str(word) for pair in given if pair[1] is not None for word in pair]


def is_named(case, pattern) -> bool:
    """Whether a pattern such as "late-*" names a case, or is its id as it stands."""
    return case["id"] == pattern or fnmatchcase(case["id"], pattern)


def check_choice(args, case_set, planned) -> None:
    """UsageError for a --case or a --class that names none of the planned cases."""
    kinds = list(dict.fromkeys(case["class"] for case in planned))
    wrong = [("--case", pattern, [case["id"] for case in planned]) for pattern in args.case
             if not any(is_named(case, pattern) for case in planned)]
    wrong += [] if args.kind in (None, *kinds) else [("--class", args.kind, kinds)]
    for option, value, known in wrong[:1]:
        hint = harness.nearest(value, known) or f"; it has {', '.join(known[:8])}{', …' * (len(known) > 8)}"
        if option == "--case" and any(is_named(case, value) for case in case_set["cases"]):
            hint = " but a held-out one"
        raise harness.UsageError(f"argument {option}: {case_set['name']} has no {option[2:]} {value}{hint}")


def chosen_cases(args, case_set) -> tuple:
    """(the cases to run as a case set, {words, of} where they are not all); UsageError for a choice of none."""
    planned = harness.plan(case_set, SPLITS, args.trials)
    check_choice(args, case_set, planned)
    cases = [case for case in planned if args.kind in (None, case["class"])
             and (not args.case or any(is_named(case, pattern) for pattern in args.case))][:args.first]
    if not cases:
        raise harness.UsageError(f"argument --class: no case of class {args.kind} is among those of --case")
    if len(cases) == len(planned):
        return case_set, None
    return part_of(case_set, cases), {"words": choice(args), "of": len(planned)}


# Command: looking before a run

def under(word: str, text: str) -> list:
    """The lines of a text made printable, the first behind a word, the others below it."""
    lines = [printable(line) for line in text.split("\n")]
    return [f"{head:<9} {line}".rstrip() for head, line in zip([word] + [""] * len(lines), lines)]


def hung(lines, term) -> list:
    """The lines of under(): on a terminal broken at spaces to its width, what is broken off below where the text begins."""
    if term.height == math.inf:     # a pipe gets a text as it stands
        return lines
    narrow, broken = replace(term, width=term.width - 10), []
    for line in lines:
        first, *rest = fold([line[10:]], narrow) or [""]
        broken += [(line[:10] + first).rstrip(), *(f"{'':<10}{part}".rstrip() for part in rest)]
    return broken


def ending_words(term, verdict, check, reason) -> str:
    """How a trial ended: "✗ failed: CHECK: reason"."""
    return ": ".join(filter(None, (f"{term.glyphs[verdict]} {VERDICT_WORDS[verdict]}", check, reason)))


def request_lines(system, case, trial, whole=False, hidden=()) -> list:
    """What is sent for a trial: the messages, and the rest of a whole request; of other systems the case's input."""
    if not harness.has(system, "sent"):
        return under("input", as_text(case["input"]))
    try:
        body = system.sent(case, trial)
    except harness.Rejection as error:
        return under("input", as_text(case["input"])) + under("", f"nothing is sent: {error}")
    lines = [line for message in body["messages"] for line in under(message["role"], message["content"])]
    rest = [key for key in body if whole and key not in ("messages", *hidden)]
    return lines + [line for key in rest for line in under(key, as_text(body[key]))]


def tried_lines(system, task, case, trial, response, term) -> list:
    """One trial from the message to the verdict, for a reader."""
    told, output = response["metadata"], response.get("output")
    ending = harness.grade(task, case, response)
    spent = [f"trial {trial}", f"seed {told['seed']}" if "seed" in told else "", format_latency(response["latency_s"])]
    compared = "\n".join(harness.compared_words(output, case, task)) if "output" in response else ""
    reply = told.get("reply", output if "output" in response else None)
    needs_wanted = not compared or case.get("failure_criteria")
    lines = [*under("case", f"{case['id']}   {', '.join(filter(None, spent))}"), *request_lines(system, case, trial),
             *(under("thinking", told["thinking"]) if told.get("thinking") else []),
             *(under("reply", as_text(reply)) if reply is not None else []),
             *(under("wanted", harness.wanted(case, task).removeprefix("wants ")) if needs_wanted else []),
             *(under("compared", compared) if compared else [])]
    verdict = hung(under("verdict", ending_words(term, *ending)), term)
    return [*hung(lines, term), *(term.paint(line, ending[0]) for line in verdict)]


def try_out(args, system, task, cases) -> int:
    """Run trials and show each of them whole; nothing is logged."""
    term, counts = terminal(sys.stdout, args.color), Counter()
    call_hook(system, "check_model")
    for text in getattr(system, "warnings", None) or ():
        warn(text)
    try:
        for case, trial in schedule(cases, args.trials):
            response = harness.attempt(system, case, trial)
            counts[harness.grade(task, case, response)[0]] += 1
            print(*tried_lines(system, task, case, trial, response, term), "", sep="\n", flush=True)
    finally:
        call_hook(system, "close")
    told = ", ".join(f"{counts[verdict]} {word}" for verdict, word in VERDICT_WORDS.items() if counts[verdict])
    print(f"tried {sum(counts.values())}: {told}; nothing was logged", f"run       {own_command(args)}", sep="\n")
    return 0


def check(args, system, task, cases, case_set) -> int:
    """Say that the task and its cases are sound, and show the request of the first case that is asked at all."""
    doubts = harness.contamination(case_set, getattr(system, "asked", None), getattr(system, "examples", ()))
    for text in doubts:
        warn(text)
    asked = [case for case in cases if "expect_rejection" not in case]
    case, named = (asked or cases)[0], args.system != ANY_MODEL
    print(f"{printable(task.NAME)}: {plural(len(cases), 'case')}, {'see the warnings' if doubts else 'nothing wrong'}", "",
          *hung([*under("case", case["id"]), *request_lines(system, case, 0, True, () if named else ("model",)),
                 *under("wanted", harness.wanted(case, task).removeprefix("wants "))], terminal(sys.stdout)), "",
          f"try       {own_command(args, *(() if named else ('--model', 'TAG')), '--try')}", sep="\n")
    return 0


# Command: what there is to measure

def logs_there(most=None) -> list:
    """[(path, header, rows, planned)] of the logs in runs/, the last written first; what is none is left out."""
    found = []
    for path in sorted(Path("runs").glob("*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True)[:most]:
        with contextlib.suppress(RunError, OSError), open_log(path) as file:
            header = reader_of(file, path).header
            file.seek(0)
            rows = sum(line.startswith(b'{"case_id"') and line.rstrip(BLANK).endswith(b"}") for line in file)
            planned = len(header.get("case_inputs") or ()) * len(rounds_of(header["trials"], header.get("shard")))
            found.append((path, header, rows, planned))
    return found


def how_far(rows, planned) -> str:
    """How far a log is: "done", "60 of 90"; "60 rows" where it does not tell what is planned."""
    return "done" if rows == planned else f"{rows} of {planned}" if planned else plural(rows, "row")


def of_model(name, digest, logs) -> list:
    """A line for each log of a model's name: how far it is, or that it is of another digest."""
    lines = []
    for path, header, rows, planned in logs:
        told, _, logged = as_text(header["system"].get("model")).lower().rpartition("@")
        if told != name.lower():
            continue
        path, state = harness.as_word(path), how_far(rows, planned)
        lines.append(f"{path} is of another digest, {logged}" if logged != digest else
                     f"{path} is done" if state == "done" else f"resumes {path} ({state})")
    return [f"  {printable(line)}" for line in lines]


def size_words(size) -> str:
    """A size in bytes: "3.2 GB", "92 MB"; "?" where there is none."""
    return "?" if size is None else f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def model_lines(models, logs) -> list:
    """A line for each model of a server, and below it those of its logs."""
    rows = [[printable(model["name"]), size_words(model["size"]), printable(as_text(model["quantisation"] or "?")),
             model["digest"] or "?"] for model in models]
    head = ["model", "size", "quantisation", "digest"]
    widths = [max(map(columns, column)) for column in zip(head, *rows)]
    told = []
    for cells, under in [(head, []), *((row, of_model(model["name"], model["digest"], logs)) for row, model in zip(rows, models))]:
        padded = [" " * (width - columns(cell)) for cell, width in zip(cells, widths)]
        told += [f"{cells[0]}{padded[0]}  {padded[1]}{cells[1]}  {cells[2]}{padded[2]}  {printable(cells[3])}", *under]
    return told


def list_systems(args) -> int:
    """Say which systems and which installed models there are, and which logs they go on with; a server need not be there."""
    source, logs, term = harness.import_named("model_triage", "system"), logs_there(), terminal(sys.stdout)
    systems = [(name, *system.model.split("@")) for name, system in vars(source).items()
               if harness.has(system, "respond") and not isinstance(system, type)]
    for name, model, digest in sorted(systems):
        print(f"--system model_triage:{name:<8}  {model:<12}  {digest}", *of_model(model, digest, logs), sep="\n")
    print("--model TAG: any Ollama model   --command ARGV: any program   --url URL: any other server")
    for what, models in source.inventory(args.host):
        print("", *([printable(what), *model_lines(models, logs)] if isinstance(models, list) else
                    fold([f"no models: {printable(str(models))}"], term)), sep="\n")
    return 0


# Command: logged trials again

def logged_trials(args, header, cases) -> list:
    """The rows of a log that the command line chooses, in file order; BenchError where there is none."""
    with open_log(args.rerun) as file:
        reader = reader_of(file, args.rerun)
        chosen = {case["id"] for case in cases if args.kind in (None, case["class"])
                  and (not args.case or any(is_named(case, pattern) for pattern in args.case))}
        places = [reader.offset for row in planned_rows(reader, cases)
                  if row["case_id"] in chosen and args.trial in (None, row["trial"])]
        warn_of_ties(args.rerun, reader.tie_faults(), warn)
        if args.sample is not None:     # not to be foreseen by whoever made the log
            places = sorted(random.SystemRandom().sample(places, min(args.sample, len(places))))
        if not places:
            raise BenchError(f"{args.rerun}: it holds no such trial")
        return [file.seek(place) and parse_line(file.readline().rstrip(BLANK)) for place in places[:args.first]]


def system_of_log(args, header, rows, task, case_set):
    """The system that a log names, set and asked as the log says; RunError where only the user can name it.

    No program and no module runs because a log names it."""
    system, options = header["system"], header["system"].get("options")
    options = options if isinstance(options, dict) else {}
    if not (args.system or args.models or args.command):
        name, model = system.get("name"), as_text(system.get("model"))
        if name != "bayes" and not ("num_ctx" in options and re.search("@[0-9a-f]{12}$", model)):
            raise RunError(f"{args.rerun}: its system {shown(name)} cannot be made from the log: give it as for the run, with "
                           "--system, --command, or --url and --model")
        args.system = f"model_triage:{name}"
    args.system = args.system or (args.models or [None])[0]
    made = named_system(args, task, case_set)
    if harness.has(made, "asking"):
        made = call_hook(made, "asking", header["asked"]) if "asked" in header else asking_system(args, task, case_set)
    known = harness.import_named("model_triage", "system").OPTIONS
    settings = {name: value for name, value in options.items() if name in known}
    timeout_s = args.timeout_s or rows[0]["metadata"].get("timeout_s")
    if harness.has(made, "configured") and (settings or timeout_s is not None):
        made = call_hook(made, "configured", settings, options.get("think") if settings else None, timeout_s)
    return made


def check_same(path, header, system) -> None:
    """BenchError where a system is not the one that a log names, which says in what: another digest first."""
    now = harness.system_identity(system)
    found = differences(spelt_as(header["system"], now), now)
    if found:
        found.sort(key=lambda one: one[0] != "model")
        raise BenchError(f"{path}: its system is not here: {in_words(found)}")


def again_lines(row, response, case, task, term) -> list:
    """What became of a logged trial that ran again: identical, or both outputs with both verdicts."""
    same = result_of(row) == result_of(response)
    then, now = (harness.dig(one, "metadata", "seed") for one in (row, response))
    seed = [] if then is None else [f"seed {then}" if then == now else f"seed {as_text(then)} then, {as_text(now)} now"]
    lines = [printable("  ".join([case["id"], f"trial {row['trial']}", *seed, "identical" if same else "differs"]))]
    for word, one in () if same else (("logged", row), ("now", response)):
        ending = harness.grade(task, case, one)
        reply = one["metadata"].get("reply", "no output")
        told = json.dumps(one["output"], ensure_ascii=False) if "output" in one else as_text(reply)
        lines += [*under(f"  {word}", told), term.paint(under("", ending_words(term, *ending))[0], ending[0])]
    return lines


def rerun(args, signals) -> int:
    """Run logged trials again, each after what came before it, and tell what became of them; nothing is logged."""
    header = header_of(args.rerun)
    task, case_set = grading_sources(args.rerun, header, args.task_given, args.cases)
    cases = logged_cases(header, args.rerun, case_set)
    check_choice(args, case_set, cases)
    rows = logged_trials(args, header, cases)
    system = at_servers(args, system_of_log(args, header, rows, task, case_set))
    check_same(args.rerun, header, system)
    run = Run([system], cases, header["trials"], None, time.perf_counter, None, 1, args.wait_s, False, None, None, warn, False,
              header.get("shard"))
    term, places, same, crew = terminal(sys.stdout, args.color), [case["id"] for case in cases], 0, Crew(1, signals)
    try:
        for row in rows:
            index = row["trial"] * len(cases) + places.index(row["case_id"])
            alone = row["metadata"].get("workers", 1) == 1      # else nobody knows what came before it
            response = run.again(crew, index, alone)
            case = cases[places.index(row["case_id"])]
            print(*again_lines(row, response, case, task, term), sep="\n", flush=True)
            if args.verbose:
                print(*tried_lines(system, task, case, row["trial"], response, term), "", sep="\n", flush=True)
            same += result_of(row) == result_of(response)
    finally:
        crew.dismiss()
        run.close()
    print(f"identical {same} of {len(rows)}")
    return 0


# Command: a run and its result

class Signals:
    """Ctrl-C and the other signals of ENDING: the first ends the run in good order, any further one at once."""

    def __init__(self):
        self.signum = self.wake = None
        # What the caller ignores (nohup, a background job) stays ignored.
        self.numbers = [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]

    def install(self):
        for number in self.numbers:
            signal.signal(number, self._handle)

    def _handle(self, signum, frame):
        if self.signum is not None:
            os._exit(128 + signum)
        self.signum = signum
        if self.wake is None:
            raise Interrupted(signum)
        self.wake.put(None)

    def rearm(self) -> None:
        """Be ready for another run: no worker of the last one waits any more. Raises Interrupted for what came meanwhile."""
        self.wake = None
        if self.signum is not None:
            raise Interrupted(self.signum)

    def when_continued(self, function):
        """Have a function called when the run goes on after Ctrl-Z."""
        if hasattr(signal, "SIGCONT"):
            signal.signal(signal.SIGCONT, lambda signum, frame: function())


def counts_before(args, case_set) -> dict:
    """The counts of a run that was interrupted before it had begun."""
    planned, logged = len(harness.plan(case_set, SPLITS, args.trials)) * len(rounds_of(args.trials, args.shard)), 0
    with contextlib.suppress(BenchError):
        logged = len(read_log(args.log)[1])
    return {"planned": planned, "already_logged": logged, "ran": 0, "not_run": max(0, planned - logged),
            "stopped_by_budget": False}


def run_logged(args, system, case_set, task, signals, progress) -> tuple:
    """(counts, what stopped the run early or None); raises what kept it from beginning."""
    files = {"task": args.task if harness.is_task_file(args.task) else None, "cases": args.cases}
    more = {key: value for key, value in (("label", args.label), ("subset", args.subset)) if value}
    settings = {key: getattr(args, key) for key in ("budget_s", "hardware", "workers", "wait_s", "sources", "redo_unanswered",
                                                    "extend", "shard", "also", "stop_if_hopeless", "sync_every")}
    try:
        with progress.beside():
            return run_bench(system, case_set, SPLITS, args.trials, args.log, task=task, locked=not args.no_lock, signals=signals,
                             grade=lambda case, response: harness.grade(task, case, response), progress=progress,
                             warn=progress.warn, told={"files": files, "command": ["bench.py", *args.words], **more},
                             **settings), None
    except PlanDiffers as error:
        if [key for key, _, _ in error.found] == ["trials"] and not args.sources:
            raise BenchError(other_trials(args, error.found[0][1])) from None
        progress.erase()
        if error.lines and sys.stderr:
            print(*error.lines, sep="\n", file=sys.stderr)
        if args.log_given:
            raise
        kept = "; --from this log and another --log take over the trials of the cases that are the same" if error.lines and \
            [key for key, _, _ in error.found] == ["case_set_sha256"] and not args.sources else ""
        raise BenchError(f"{error}, or {'another' if args.label else 'a'} --label for a log beside it{kept}") from None
    except (RunError, SystemDown, Interrupted) as error:
        if not hasattr(error, "counts") and isinstance(error, Interrupted):
            error.counts = counts_before(args, case_set)
        if not hasattr(error, "counts"):
            raise
        return error.counts, error


def why_stopped(stop, counts) -> str:
    """Why trials are left, for the counts line."""
    if isinstance(stop, Interrupted):
        return "interrupted; the same command resumes" if counts["not_run"] else "interrupted"
    if stop:
        why = "stopped as hopeless" if isinstance(stop, Hopeless) else "stopped by an error"
        return f"{why}; the same command resumes" if counts["not_run"] else ""
    if not counts["stopped_by_budget"]:
        return ""
    return "time budget spent; " + ("the same command resumes" if counts["ran"] else "it left no time for a trial")


def show_result(args, log, system, progress, counts, stop, task) -> None:
    """The counts line, the grid of what is logged so far, and where to go from here."""
    width = terminal(sys.stdout).width if sys.stdout and sys.stdout.isatty() else math.inf
    print(format_counts(progress.name, counts, why_stopped(stop, counts), width), flush=True)
    if not counts["already_logged"] + counts["ran"]:
        return
    if progress.verdicts:
        term, found = terminal(sys.stdout, args.color), (progress.verdicts, progress.refuses)
        print("", *grid_lines(*found, term), "", *fold(headline(outline(*found)), term), "", sep="\n")
    said = [hopeless_text(system, progress.calls)] if is_hopeless(progress.calls) else unusable_lines(system, progress.calls)
    print(*fold(said, terminal(sys.stdout)), sep="\n", end="\n" * bool(said))
    regraded = identity_in(progress.header) not in (None, harness.task_identity(task))
    if regraded:
        warn("the checks have changed since this log began: the grid shows what today's make of it")
    called_s, calls = progress.called_s, ""
    if called_s:
        calls = f"   {plural(len(called_s), 'model call')} now, median {format_latency(statistics.median(called_s))}"
    report = report_command(args, [args.log], progress.header, regraded)
    every = str(args.log).replace("-{part}-of-".format(**args.shard), "-*-of-") if args.shard else ""
    parts = [f"parts   {report.replace(str(args.log), every)}"] if re.fullmatch("[-*+./\\w]+", every) else []
    print(f"log     {printable(str(args.log))}{calls}", f"report  {report}", *parts, sep="\n", flush=True)


def run_one(args, system, case_set, task, signals) -> None:
    """Run and show the result; raises what stopped it early."""
    log, progress = args.log.absolute(), Progress(" ".join(filter(None, (system.name, args.label))), color=args.color)
    signals.when_continued(progress.forget)
    counts, stop = run_logged(args, system, case_set, task, signals, progress)
    progress.erase()
    show_result(args, log, system, progress, counts, stop, task)
    if signals.signum and not stop:
        stop = Interrupted(signals.signum)      # it came when the last trial had ended
    if isinstance(stop, SystemDown) and counts["not_run"]:
        raise SystemDown(f"{stop}; then the same command resumes")
    if stop:
        raise stop


def see_all(runs, case_set, task, signals) -> None:
    """See, before the first of several runs, that each can begin: its log, its model, its settings."""
    for args, system in runs:
        progress = Progress(system.name, color=args.color)
        counts, stop = run_logged(argparse.Namespace(**{**vars(args), "budget_s": 0}), system, case_set, task, signals,
                                  progress)
        if stop:
            raise stop
        signals.rearm()
        if counts["not_run"]:
            tell(progress, "seeing that it can run")
            for one in (system, *args.also):
                patiently(lambda: call_hook(one, "check_model"), args.wait_s, time.perf_counter, progress)
        progress.erase()


def run_each(runs, case_set, task, signals) -> int:
    """Run several systems one after the other, a lost one costs its own trials only; the exit status."""
    status, began = 0, time.monotonic()
    for args, system in runs:
        signals.rearm()
        if args.budget_s is not None:
            args.budget_s = max(0, args.budget_s - (time.monotonic() - began))
        try:
            run_one(args, system, case_set, task, signals)
        except (SystemDown, Hopeless) as error:
            status = harness.complain(f"{system.name}: {error}")
        print()
    logs = [args.log for args, _ in runs if args.log.exists()]
    if len(logs) > 1:
        print(f"compare {report_command(runs[0][0], logs, header_of(logs[0]))}")
    return status


def set_logs(runs, task) -> None:
    """Give each run its log; UsageError where two would share one."""
    logs = {}
    for args, system in runs:
        args.log_given = args.log is not None
        args.log = args.log or default_log(system.name, "" if args.task == "triage_task" else task.NAME, args.label or "",
                                           choice(args) if args.subset else (), args.shard)
        if args.workspace is not None and Path(os.path.realpath(args.workspace)) in Path(os.path.realpath(args.log)).parents:
            raise harness.UsageError(f"argument --workspace: the log {args.log} lies in {args.workspace}, which each trial would "
                                     "copy and each row change: give a --log elsewhere, or a folder of its own")
        if args.log in logs:
            raise harness.UsageError(f"argument --model: {logs[args.log]} and {system.name} are one model or have one log, "
                                     f"{args.log}: run them one by one, the second with --log")
        logs[args.log] = system.name


def convert(args) -> int:
    """Write the log, or several of one plan merged, as a recording."""
    logs = args.logs or [args.log]
    own = log_sources(header_of(logs[0]))[1]
    case_set = own if own and not args.cases else harness.load_plan(args.task, args.cases)[1]
    harness.write(args.convert, to_recording(logs, case_set, warn))
    print(f"{printable(str(args.convert))}: the recording of {', '.join(printable(str(log)) for log in logs)}")
    return 0


def bench(argv=None) -> int:
    """Run, resume or convert; returns the exit status."""
    args = parse_args(argv)
    signals = Signals()
    signals.install()
    if args.list:
        return list_systems(args)
    if args.rerun:
        return rerun(args, signals)
    if args.convert and args.log:
        return convert(args)
    task, case_set = harness.load_plan(args.task, args.cases)
    each = [argparse.Namespace(**{**vars(args), "system": spec}) for spec in args.models] or [args]
    runs = [(one, at_servers(one, chosen_system(one, task, case_set))) for one in each]
    case_set, subset = chosen_cases(args, case_set)
    for text in getattr(task, "warnings", ()):
        warn(f"{args.task}: {text}")
    args, system = runs[0]
    if args.check or args.attempt:
        planned = harness.plan(case_set, SPLITS, args.trials)
        return check(args, system, task, planned, case_set) if args.check else try_out(args, system, task, planned)
    for each, _ in runs:
        each.subset = subset
    set_logs(runs, task)
    if args.convert:
        return convert(args)
    if len(runs) > 1:
        see_all(runs, case_set, task, signals)
        return run_each(runs, case_set, task, signals)
    run_one(args, system, case_set, task, signals)
    return 0


def main(argv=None) -> int:
    """The command line; returns the exit status."""
    try:
        return harness.run_command(bench, argv)
    except Interrupted as stop:
        return 128 + stop.signum


def script():
    """The program as a command, and the start of a zip archive."""
    sys.exit(main())


if __name__ == "__main__":
    script()
