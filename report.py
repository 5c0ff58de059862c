"""What the trials of a benchmark say: counts, estimates, comparison, gates.

    python3 report.py                         which logs there are in runs/
    python3 report.py LOG                     a log of bench.py, or a run record
    python3 report.py LOG --failures          what the failing trials answered
    python3 report.py NEW OLD                 two systems on the same cases
    python3 report.py LOG --out page.html     a page; .svg a picture
    python3 report.py NEW --min pass@1=0.8 --no-worse-than OLD

The last form is a gate for CI: exit status 1 when it is not met. pass@k is
the chance that at least one of k trials passes, pass^k that all k do; both
are averaged over cases. Every interval is a 95 % interval. A trial that was
not run is no failure: while there is one, no curve and no interval of the
whole is given.
"""

import os
import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)    # an interrupt during the imports below ends quietly
    # The other scripts lie beside this one, which Python does not look at when told to be safe (-P, -I).
    sys.path.append(os.path.dirname(os.path.realpath(__file__)))

import harness      # the first import, since it refuses a Python that is too old for the others

import argparse
import contextlib
import csv
import io
import json
import math
import operator
import re
import shlex
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from html import escape
from itertools import accumulate, groupby, zip_longest
from pathlib import Path

import bench
from bench import fold, in_columns, plural, rates, span
from harness import (ENDS, FEW_K, RUNTIMES, RunError, amount, around, as_text, case_rows, compact, compared_words,
                     costs, curve, curve_band, dig, exact_curve, is_number, is_walked, latency_s, mean, mean_variance,
                     parallel_calls, pass_at_k, pass_power_k, printable, rounded, runtimes, sign_flip_p,
                     significant, sums, tally, wanted, wilson)

# The contents, in the order in which data flows:
#   Read      words for what is read; logs and run records; the rows of a run record
#   Estimate  one system; two systems on the same cases; the whole report (the formulas are in harness.py)
#   Judge     gates
#   Show      text of one system, of two, of several; failures; colours and style; words for page and picture; drawing;
#             the picture; the page: a case and its answers, tables, grids, its parts; formats for other programs
#   Command   the command line; checking a report

REPORT_VERSION = "2"
LEVEL = 0.05
TESTED = ("same_cases", "new_cases", "model_calls")     # the parts of a comparison that have a p of the trials
PLANNED = 0.05      # the half-width of an interval that a report says the price of, unless told another
INVERTED = "p is of the exact distribution, found by a Fourier transform, to 1e-12"
HOLM = "p is adjusted for the number of comparisons (Holm), but McNemar's"
# With fewer units that differ, no arrangement of signs has a p under LEVEL: 2 / 2 ** 5 is 0.0625.
LEAST_UNITS = 6
FOLDS = {
    "all": ("every trial passes", lambda passed, trials: passed == trials),
    "majority": ("more than half of the trials pass", lambda passed, trials: 2 * passed > trials),
    "any": ("at least one trial passes", lambda passed, trials: passed > 0),
}
# The options that a report's figures follow from, by which it is made again.
REMADE = ("require", "min", "margin", "allow_incomplete", "price_in", "price_out", "plan", "baseline", "regrade", "redact")
REPLY_LINES = 3     # of a reply or an input, unless one case is asked for


# Read: words for what is read

def planned(system, times) -> str:
    """The size of a plan: "9 cases x 10 trials", "3 of 9 cases x 10 trials" where cases were chosen."""
    subset = dig(system, "provenance", "subset")
    chosen = f"{system['cases']} of " if bench.is_subset(subset) else ""
    return f"{chosen}{plural(subset['of'] if chosen else system['cases'], 'case')} {times} {plural(system['trials_per_case'], 'trial')}"


def p_text(p: float) -> str:
    """A p-value in words: "p = 0.25", "p < 0.001"."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3g}"


def seconds(value: float) -> str:
    """A time in a unit that suits it: "under 1 ms", "12 ms", "0.44 s", "2 h 5 min"."""
    if value >= 120:
        return bench.format_duration(value)
    return "under 1 ms" if value < 0.001 else bench.format_latency(value)


# Read: logs and run records

def log_sources(path, args) -> tuple:
    """(task, case set) of a log: its own, or what the command line names or has graded anew."""
    return bench.grading_sources(path, bench.header_of(path), args.task, args.cases, args.regrade, bench.warn)


def read_record(paths, args):
    """The record of a log or of logs of parts of one plan, or the run record that a file holds."""
    path = paths[0]
    if not bench.is_log(path):
        return harness.read_json(path)
    record = bench.graded_logs(paths, *log_sources(path, args), args.regrade)
    bench.warn_of_ties(path, record.faults, bench.warn)
    record.rows = lru_cache(maxsize=3)(record.rows)     # all formats are at about the same case
    return record


def read_records(groups, args) -> tuple:
    """(the run record of each group of paths, {case id: case} of their cases where a log or --failures tells them)."""
    records = [read_record(paths, args) for paths in groups]
    asked = getattr(records[0], "asked", {})
    if args.failures and not asked:
        case_set = harness.load_plan(args.task or "triage_task", args.cases)[1]
        if case_set["sha256"] != dig(records[0], "manifest", "case_set", "sha256"):
            raise RunError(f"{args.cases or 'the case file'} is not the case set of {args.runs[0]}: --failures shows the "
                           "inputs, so give the right file with --cases")
        asked = {case["id"]: case for case in case_set["cases"]}
    return records, asked


def check_case(args, report, asked):
    """RunError when --case names none of a report's cases, or one whose input --failures cannot show."""
    known = report["systems"][0]["per_case"]
    if args.case is not None and args.case not in known:
        raise RunError(f"--case {args.case}: there is no such case{harness.nearest(args.case, known)}")
    if not set(asked) >= set(known):
        raise RunError(f"{args.runs[0]} holds cases that its case set has not: it is not whole")


# Read: the rows of a run record

def cause(row: dict) -> str:
    """Why a trial is incomplete: the name of its error."""
    return row["reason"].partition(":")[0]


def has_run(row: dict) -> bool:
    return row["verdict"] != "incomplete" or cause(row) != "NotRun"


def passed(rows) -> int:
    return sum(row["verdict"] == "pass" for row in rows)


def why_not_passed(check, reason) -> str:
    """A trial's check and reason, or its error: "triage-outcome: category is …"."""
    return f"{check}: {reason}" if check else reason


# Estimate: one system

def case_report(record, number) -> dict:
    """The figures of one case."""
    where, name = record.of(number), record.names[number]
    won, absent = record.count("pass", where), record.count("not run", where)
    ran = record.trials - absent
    report = {"class": record.cases[name], "pass": won, "fail": record.count("fail", where),
              "incomplete": record.count("incomplete", where) + absent, "not_run": absent,
              "interval": rounded(wilson(won / ran, ran)) if ran else None,
              "distinct_outputs": len({*record.outputs[where]} - {0}), "latency_s": latency_s(record, where)}
    return {**report, "expects_rejection": True} if name in record.refused else report


def outline(record) -> dict:
    """The part of a run record's figures that a headline tells."""
    absent = [record.count("not run", record.of(number)) for number in range(len(record.cases))]
    return harness.outline(record.matrix(), absent, [name in record.refused for name in record.cases])


def whole_rounds(record) -> tuple:
    """(how many rounds ran for every case, the passes of each case in them): all trials of a run that is whole."""
    absent, matrix = ENDS.index("not run"), record.matrix()
    rounds = [trial for trial in range(record.trials) if absent not in record.verdicts[trial::record.trials]]
    return len(rounds), [sum(map(row.__getitem__, rounds)) for row in matrix]


def complete_rounds(record) -> dict:
    """The curve of the trials that ran for every case: a fair smaller run, since the order is trial-major."""
    rounds, counts = whole_rounds(record)
    return {"rounds": rounds, "curve": curve(rounds, counts) if rounds else None}


def planning(record, half) -> dict:
    """What size of run would bring the half-width of each interval of all cases' pass rate down to half; None while a
    trial has not run, for one case and for one trial."""
    found = None if record.count("not run") else harness.Planning.of(*sums(record.matrix()))
    if not found:
        return None
    cases, spent, workers = found.cases_for(half), amount(record, "recorded_latency_s"), runtimes(record).get("workers", ())
    at_once = [int(count) for count in workers if count.isdigit()]
    return {"half_width": half, "trials": found.trials_for(half), "cases": cases,
            "size": None if cases else found.size_for(half),
            "with_any_trials": round(harness.half_width(found.new(found.cases, harness.MOST_PLANNED)), 4),
            "s_per_trial": round(mean(spent) / max([1, *at_once]), 4) if spent else None}


def system_report(record, prices=None, half=PLANNED) -> dict:
    """The figures of one run record; estimates are None while a planned trial has not run."""
    record = compact(record)
    trials, whole = record.trials, not record.count("not run")
    counts, each = sums(record.matrix())
    told = outline(record)
    per_case = {name: case_report(record, number) for number, name in enumerate(record.cases)}
    possible = [case["pass"] + case["incomplete"] for case in per_case.values()]
    verdicts = {verdict: record.count(verdict) for verdict in harness.VERDICTS}
    verdicts["incomplete"] += record.count("not run")
    failed, incomplete, sure = record.endings_of("fail"), record.endings_of("incomplete"), harness.sureness(record)
    return {
        "system": record.manifest["system"],
        "recording_sha256": record.manifest["recording_sha256"],
        "trials_per_case": trials,
        "cases": len(record.cases),
        "verdicts": {verdict: count for verdict, count in verdicts.items() if count},
        "not_run": record.count("not run"),
        "failures_by_check": tally((check, count) for (_, check, _), count in failed.items()),
        "incomplete_by_error": tally((reason.partition(":")[0], count)
                                     for (_, _, reason), count in incomplete.items()),
        "per_case": per_case,
        "flaky_cases": [name for name, case in per_case.items() if 0 < case["pass"] < trials - case["not_run"]],
        "never_passed": [name for name, case in per_case.items() if not case["pass"] and case["not_run"] < trials],
        "curve": curve(trials, counts) if whole else None,
        "latency_s": latency_s(record),
        **{key: told[key] for key in ("pass_rate", "model_calls", "passed_per_trial")},
        "curve_band": curve_band(counts, each) if whole else None,
        "curve_if_incomplete_passed": curve(trials, possible) if whole and possible != counts else None,
        "curve_complete_rounds": None if whole else complete_rounds(record),
        "costs": costs(record, prices),
        "runtimes": runtimes(record),
        "parallel_calls": parallel_calls(record),
        "provenance": record.manifest.get("provenance"),
        "unsteady_cases": [name for name, case in per_case.items()
                           if case["pass"] and not case["fail"] and case["incomplete"] > case["not_run"]],
        "steadiness": told["steadiness"],
        "planning": planning(record, half),
        **({"sureness": sure} if sure else {}),
    }


# Estimate: two systems on the same cases

def folded(a: list, b: list, names: list, policy: str) -> dict:
    """The cases that only one of two pass matrices passes by the policy, and McNemar's p."""
    passes = FOLDS[policy][1]
    pairs = [(name, passes(sum(x), len(x)), passes(sum(y), len(y))) for name, x, y in zip(names, a, b)]
    only_a = [name for name, in_a, in_b in pairs if in_a and not in_b]
    only_b = [name for name, in_a, in_b in pairs if in_b and not in_a]
    p = sign_flip_p([1] * len(only_a) + [-1] * len(only_b))
    return {"policy": policy, "only_a": only_a, "only_b": only_b, "p": significant(p)}


def compared(a: list, b: list, names: list, policy: str) -> dict:
    """The difference a − b of two pass matrices of the same cases and trials, its intervals and exact tests."""
    cells = [list(map(operator.sub, *rows)) for rows in zip(a, b)]
    cases, trials, flips = len(cells), len(cells[0]), [sum(row.count(one) for row in cells) for one in (1, -1)]
    by_case, by_trial, total = list(map(sum, cells)), list(map(sum, zip(*cells))), cases * trials
    difference = (flips[0] - flips[1]) / total
    case_variance, trial_variance = mean_variance(by_case) / trials ** 2, mean_variance(by_trial) / cases ** 2
    cell_variance = (sum(flips) / total - difference ** 2) / (total - 1) if total > 1 else 0.0
    variance = max(case_variance, trial_variance, case_variance + trial_variance - cell_variance)
    p_trials, p_cases = sign_flip_p(by_trial), sign_flip_p(by_case)
    counts = [(name, sum(x), sum(y)) for name, x, y in zip(names, a, b)]
    return {"difference": round(difference, 4),
            "same_cases": {"interval": around(difference, trial_variance, trials - 1), "p": p_trials,
                           "trials_that_differ": sum(map(bool, by_trial))},
            "new_cases": {"interval": around(difference, variance, min(cases, trials) - 1),
                          "p": max(p_trials, p_cases), "cases_that_differ": sum(map(bool, by_case))},
            "folded": folded(a, b, names, policy),
            "cases": cases, "trials_per_case": trials, "passed": [sum(map(sum, a)), sum(map(sum, b))],
            "flips": flips,
            "more_in_a": {name: [x, y] for name, x, y in counts if x > y},
            "more_in_b": {name: [x, y] for name, x, y in counts if x < y},
            **({} if is_walked(by_trial) and is_walked(by_case) else {"p_by_inversion": True})}


# Estimate: the whole report

def named(manifest) -> str:
    """The name of what was measured, with the label of its log."""
    label = dig(manifest, "provenance", "label")
    return manifest["system"]["name"] + (f" {label}" if isinstance(label, str) and label else "")


def labels(records: list) -> list:
    """The name of each system, numbered where a name comes more than once: no two have the same."""
    names, titles = [named(record.manifest) for record in records], []
    for name in names:
        numbered = [name] if names.count(name) == 1 else [f"{name} ({number})" for number in range(1, 2 * len(names) + 1)]
        titles.append(next(title for title in numbered if title == name or title not in {*names, *titles}))
    return titles


def why_not_compared(records, titles, trials):
    """Why two runs of the same cases cannot be compared on their first trials, or None."""
    gone = ENDS.index("not run")
    absent = [sum(record.verdicts[trial::record.trials].count(gone) for trial in range(trials)) for record in records]
    told = [f"{plural(count, 'trial')} of {title} not run" for count, title in zip(absent, titles) if count]
    return " and ".join(told) or None


def calls_compared(a: list, b: list) -> dict:
    """The difference a − b of the pass matrices of the cases that reach a model, and its exact test over the trials."""
    (counts_a, each_a), (counts_b, each_b), trials = sums(a), sums(b), sum(map(len, a))
    passed = [sum(counts_a), sum(counts_b)]
    return {"trials": trials, "passed": passed, "difference": round((passed[0] - passed[1]) / trials, 4) if trials else None,
            "p": sign_flip_p(list(map(operator.sub, each_a, each_b)))}


def comparison(records, titles, policy) -> dict:
    """What two runs of the same cases say of each other on the trials that both have; not_compared tells why nothing."""
    records = list(map(compact, records))
    result = {"a": titles[0], "b": titles[1],
              **dict.fromkeys(("difference", "same_cases", "new_cases", "folded")), **bench.what_differs(records, titles)}
    trials, names = min(record.trials for record in records), records[0].names
    reason = why_not_compared(records, titles, trials)
    if reason:
        return {**result, "not_compared": reason}
    both = [[row[:trials] for row in record.matrix()] for record in records]
    called = [[row for row, name in zip(rows, names) if name not in records[0].refused] for rows in both]
    result.update(model_calls=calls_compared(*called), left_out=[record.trials - trials for record in records])
    tokens = harness.divergence(records)
    return {**result, **compared(*both, names, policy), **({"tokens": tokens} if tokens else {})}


def adjust(found) -> None:
    """Give every comparison of several its p by Holm's method (1979), under p_adjusted."""
    for scope in TESTED:
        least, parts = 0.0, sorted((one[scope] for one in found), key=lambda part: part["p"])
        for rank, part in enumerate(parts):
            least = max(least, min(1.0, (len(parts) - rank) * part["p"]))
            part["p_adjusted"] = significant(least)


def comparisons(records, titles, policy, reference, gated) -> list:
    """Each system beside the reference, p adjusted from two comparisons on, and gated the last record beside the first."""
    pairs = [(reference, number) for number in range(len(records) - gated) if number != reference]
    found = [comparison([records[one] for one in pair], [titles[one] for one in pair], policy) for pair in pairs]
    whole = [one for one in found if "not_compared" not in one]
    if len(whole) > 1:
        adjust(whole)
    found += [comparison((records[0], records[-1]), (titles[0], titles[-1]), policy)] * gated
    for part in [one[scope] for one in found for scope in TESTED if "not_compared" not in one]:
        part["p"] = significant(part["p"])      # not before, since the adjusted ones are multiples of the exact ones
    return found


def separating(systems) -> list:
    """The cases whose share of passed trials differs between systems, those that differ most first."""
    spread = {}
    for name in systems[0]["per_case"]:
        cases = [system["per_case"][name] for system in systems]
        ran = [(case, system["trials_per_case"] - case["not_run"]) for case, system in zip(cases, systems)]
        shares = [case["pass"] / trials for case, trials in ran if trials]
        spread[name] = round(mean_variance(shares), 12) if shares else 0
    return sorted((name for name in spread if spread[name]), key=lambda name: -spread[name])


def reference_among(name, titles, records, paths) -> int:
    """Which system others are compared with: the one of that label, name or path, the first where none is named."""
    known = [(title, record.manifest["system"]["name"], str(path)) for title, record, path in zip(titles, records, paths)]
    for number, names in enumerate(known if name else ()):
        if name in names:
            return number
    if name:
        raise RunError(f"--baseline {name}: there is no such system{harness.nearest(name, [title for title, *_ in known])}")
    return 0


def build_report(records: list, names=None, policy: str = "all", prices=None, baseline: bool = False, half=PLANNED,
                 reference=None) -> dict:
    """The report of the run records of one task and case set; RunError names the one that cannot be reported.

    With baseline the last record is compared with the first and not reported itself; reference names the system with
    which the others are compared."""
    names = names or [f"run record {number}" for number in range(1, len(records) + 1)]
    records = harness.check_records(records, names)
    manifest, reported = records[0].manifest, records[:-1] if baseline else records
    titles = labels(reported)
    first = reference_among(reference, titles, reported, names)
    if baseline:
        titles.append(f"{records[-1].manifest['system']['name']} (baseline)")
    systems = [{**system_report(record, prices, half), "label": title} for record, title in zip(reported, titles)]
    return {"report_version": REPORT_VERSION, "case_set": manifest["case_set"], "systems": systems,
            "comparisons": comparisons(records, titles, policy, first, baseline),
            "gates": [], "task": manifest["task"], "policy": policy,
            **({"reference": titles[first], "separating": separating(systems)} if len(systems) > 1 else {})}


# Judge: gates

def verdict_line(case_id, record) -> str:
    """A case that does not pass: its count, and its first failing trial's check and reason."""
    where = record.of(record.names.index(case_id))
    trial = next(trial for trial, kind in enumerate(record.verdicts[where]) if ENDS[kind] != "pass")
    _, check, reason = record.table[record.endings[where][trial]]
    told = why_not_passed(check, reason)
    return f"{case_id} [{record.count('pass', where)}/{record.trials} trials] trial {trial}: {told}"


def require_gate(system, record, policy) -> dict:
    """Whether every case passes by the policy."""
    words, passes = FOLDS[policy]
    failing = [name for name, case in system["per_case"].items() if not passes(case["pass"], record.trials)]
    cases = len(system["per_case"])
    told = f"{words} in {cases - len(failing)} of {plural(cases, 'case')}"
    return {"met": not failing, "detail": told, "cases": [verdict_line(name, record) for name in failing]}


def least_gate(system, formula, k, least) -> dict:
    """Whether the mean of pass@k or pass^k over the cases is at least so much."""
    trials = system["trials_per_case"]
    if k > trials:
        return {"met": False, "detail": f"k is {k}, and the run has {plural(trials, 'trial')} a case"}
    value = mean([formula(trials, case["pass"], k) for case in system["per_case"].values()])
    told = f"{value:.4f}, {plural(system['cases'], 'case')} x {plural(trials, 'trial')}"
    return {"met": value >= least - 1e-12, "detail": told}


def no_worse_gate(comparison, margin, record) -> dict:
    """Whether the first system is not shown to be worse and, with a margin, shown to be less than that worse."""
    if "not_compared" in comparison:
        return {"met": False, "detail": comparison["not_compared"]}
    difference, trials, same = comparison["difference"], comparison["trials_per_case"], comparison["same_cases"]
    worse = comparison["passed"][0] < comparison["passed"][1] and same["p"] < LEVEL
    met, asked = not worse, "asked: is it shown to be worse"
    if margin is not None:
        # Trials that all differ by the same give no interval; enough of them stand for one.
        lower = same["interval"][0] if same["interval"] else difference if trials >= LEAST_UNITS else None
        met = met and lower is not None and lower > -margin
        limit = f"no lower limit from {plural(trials, 'trial')}" if lower is None else f"lower limit {lower:+.3f}"
        asked = f"asked: is it shown to be less than {margin:g} worse ({limit})"
    elif trials < LEAST_UNITS:
        asked += f", which {plural(trials, 'trial')} cannot show: run {LEAST_UNITS} or more, or give --margin"
    asked = "; ".join([asked, *shared_words(comparison)])
    lines = [f"{verdict_line(name, record)} (was {b}/{trials})"
             for name, (_, b) in comparison["more_in_b"].items()]
    return {"met": met, "detail": f"difference {difference:+.3f} on the same cases, {p_text(same['p'])}; {asked}",
            "cases": [] if met else lines}


def ungradable(record):
    """Why no gate is met whatever it asks, or None: trials that never ran, or whose check broke."""
    absent, broken = record.count("not run"), Counter()
    for (_, _, reason), count in record.endings_of("incomplete").items():
        name, _, what = reason.partition(": ")
        broken.update({what.partition(": ")[0]: count} if name == "CheckError" else {})
    told = [f"{plural(absent, 'planned trial')} not run"] if absent else []
    return "; ".join(told + [f"{what} in {plural(count, 'trial')}" for what, count in broken.items()]) or None


def system_gates(system, record, args) -> dict:
    """{gate: its verdict} for one system."""
    incomplete, allowed = system["verdicts"].get("incomplete", 0), args.allow_incomplete or 0
    found = {f"--require {args.require}": require_gate(system, record, args.require)} if args.require else {}
    found |= {f"--min {text}": least_gate(system, formula, k, least) for text, formula, k, least in args.min}
    found[f"--allow-incomplete {allowed}"] = {"met": incomplete <= allowed,
                                              "detail": plural(incomplete, "incomplete trial")}
    why = ungradable(record)
    return dict.fromkeys(found, {"met": False, "detail": why}) if why else found


def gates(report: dict, records: list, args) -> list:
    """[{gate, met, detail}] of the gates that were asked for, with the cases that keep one from being met."""
    if not args.require and not args.min and args.no_worse_than is None and args.allow_incomplete is None:
        return []
    found, several, records = [], len(report["systems"]) > 1, list(map(compact, records))
    for system, record in zip(report["systems"], records):
        for name, verdict in system_gates(system, record, args).items():
            found.append({"gate": f"{name}, {system['label']}" if several else name, **verdict})
    if args.no_worse_than is not None:
        last = report["comparisons"][-1]
        whys = [f"{last[key]}: {why}" for key, why in (("a", ungradable(records[0])), ("b", ungradable(records[-1]))) if why]
        verdict = {"met": False, "detail": "; ".join(whys)} if whys else no_worse_gate(last, args.margin, records[0])
        found.append({"gate": f"--no-worse-than {last['b']}", **verdict})
    return found


# Show: text of one system

def title(system) -> str:
    """What was measured, and on what: "qwen3.5:0.8b@de63045f2975  Q8_0  ctx 4096  temp 1"."""
    name, model = system["system"]["name"], as_text(system["system"].get("model") or "")
    number = system["label"].removeprefix(name)
    told = [model + number] if model.startswith(name) else [name + number] + [f"model {model[:12]}"] * bool(model)
    versions = list(system["runtimes"].get("server_version", ()))
    environment = dig(system, "provenance", "environment")
    server, temperature = dig(environment, "server"), dig(system, "system", "options", "temperature")
    facts = (("{}", dig(server, "quantization_level")), ("ctx {}", dig(server, "context_length")),
             ("temp {}", as_text(temperature).removesuffix(".0") if is_number(temperature) else None),
             ("server {}", versions[0] if len(versions) == 1 else None),
             ("GPU {}%", dig(server, "gpu_percent")), ("{}", dig(environment, "hardware")))
    return "  ".join(told + [words.format(as_text(fact)) for words, fact in facts if fact is not None])


def verdict_counts(system, term) -> str:
    """How the trials ended: "77 passed, 13 failed"."""
    counts = {**system["verdicts"], "not run": system["not_run"]}
    counts["incomplete"] = counts.get("incomplete", 0) - system["not_run"]
    return ", ".join(term.paint(f"{counts[verdict]} {word}", verdict)
                     for verdict, word in bench.VERDICT_WORDS.items() if counts.get(verdict))


def had_passed(system) -> list:
    """In a text what the rate that a headline tells would be, had the incomplete trials passed; none where it is known."""
    if not system["curve_if_incomplete_passed"]:
        return []
    _, won, of, *_ = rates(system)[0]
    absent = sum(case["incomplete"] for case in system["per_case"].values()
                 if of == system["cases"] * system["trials_per_case"] or "expects_rejection" not in case)
    return [f"at most {(won + absent) / of:.3f} had the {plural(absent, 'incomplete trial')} passed"]


def more_words(system, cases, trials) -> str:
    """What a plan of that size runs beyond what is logged: ", 144 trials more, 63 s at 0.44 s a trial"."""
    there = min(cases, system["cases"]) * min(trials, system["trials_per_case"])
    more, each = cases * trials - there, system["planning"]["s_per_trial"]
    took = f", {seconds(more * each)} at {seconds(each)} a trial" if each and each >= 0.001 else ""
    return f", {plural(more, 'trial')} more{took}" if more > 0 else ", which is reached"


def planning_words(system) -> list:
    """What would bring each interval down to a half-width, in texts for the same cases and for new ones; [] where unknown."""
    plan, cases, trials = system["planning"], system["cases"], system["trials_per_case"]
    if not plan:
        return []
    same = f"these {cases} cases: no number of trials does"
    if plan["trials"]:
        same = f"these {cases} cases: about {plural(plan['trials'], 'trial')} a case{more_words(system, cases, plan['trials'])}"
    size, new = (plan["cases"], trials) if plan["cases"] else plan["size"], "new cases: "
    if plan["with_any_trials"] > plan["half_width"]:
        new += f"at {cases} cases no number of trials does ({plan['with_any_trials']:.3f} stays); "
    new += f"at {trials} trials a case no number of cases does; " if not plan["cases"] else ""
    return [same, new + (f"about {size[0]} cases at {size[1]} trials{more_words(system, *size)}" if size else "so no run does")]


def planning_line(system) -> list:
    """The same in one short text, where both are known and something is left to do; else none."""
    plan, cases, trials = system["planning"], system["cases"], system["trials_per_case"]
    if not plan or plan["trials"] and plan["trials"] <= trials and plan["cases"] and plan["cases"] <= cases:
        return []
    same = f"about {plan['trials']} trials a case" if plan["trials"] else "no number of trials is enough"
    new = f"about {plan['cases']} of {trials} trials" if plan["cases"] else f"no number is enough at {trials} trials"
    return [f"to within {plan['half_width']:g}: {same}; new cases: {new}"]


def headline(system, term) -> list:
    """The headline of one system in lines as wide as the terminal."""
    return fold(bench.headline(system) + [f"  {text}" for text in had_passed(system) + planning_line(system)], term)


def format_planning(system, term) -> list:
    """What would make the intervals narrower."""
    told = planning_words(system)
    head = f"{system['label']}, the pass rate of all {plural(system['cases'], 'case')} to within {system['planning']['half_width']:g}:" if told else (
        f"{system['label']}: what would narrow its intervals is unknown: it takes two cases and two trials, all of them run")
    return fold([head, *(f"  {text}" for text in told)], term)


def format_curve(values, term) -> list:
    """A curve as a table at a few k."""
    last = len(values)
    few = [k for k in FEW_K if k < last][:max(1, (term.width - 19) // 7 - 1)] + [last]
    return ["k trials           " + "".join(f"{k:>7}" for k in few),
            "at least one passes" + "".join(f"{values[str(k)]['pass_at_k']:>7.3f}" for k in few),
            "all pass           " + "".join(f"{values[str(k)]['pass_power_k']:>7.3f}" for k in few)]


def resume_words(system, path="") -> tuple:
    """(what to do about the trials that a stopped run lacks, the command that does it or "")."""
    shard, merged = (dig(system, "provenance", key) for key in ("shard", "shards"))
    if merged:
        return "run the parts that lack them", ""
    trials = system["cases"] * system["trials_per_case"]
    if bench.is_shard(shard) and trials - system["not_run"] == system["cases"] * len(
            bench.rounds_of(system["trials_per_case"], shard)):
        return "part {part} of {of} of the plan is whole: report it with the logs of the other parts".format(**shard), ""
    command = bench.resume_command(system, path)
    return "to resume" + (":" if command else ", give the bench.py command of the log again"), command


def format_not_run(system, rounds, values, term, path) -> list:
    """How many trials a stopped run lacks, how to resume it, and the curve of its complete rounds."""
    words, command = resume_words(system, path)
    lines = fold([f"{plural(system['not_run'], 'trial')} not run, so no curve and no interval of the whole; {words}"], term)
    lines += [f"  {command}"] if command else []
    if rounds:
        trials = plural(system["cases"] * rounds, "trial")
        lines += ["", f"the {plural(rounds, 'complete round')} alone, {trials}:", *format_curve(values, term)]
    return lines


def causes_of_run(system) -> dict:
    """The causes of the incomplete trials that ran: those that did not are told apart."""
    return {name: count for name, count in system["incomplete_by_error"].items() if name != "NotRun"}


def cost_lines(system) -> list:
    """Latency, tokens, time and money, where the trials tell them."""
    costs, latency, lines = system["costs"], system["latency_s"], []
    load, spent, paid, fast = costs["load_s"], costs["time_s"], costs["money"], costs["tokens_per_s"]
    timed = costs["model_s"] or latency["trials"] and latency
    if timed:
        words = "model time, load apart" if costs["model_s"] else "latency"
        lines.append(f"{words}: median {seconds(timed['median'])}, p90 {seconds(timed['p90'])} (n {timed['trials']})")
    if load:
        lines.append(f"load: median {seconds(load['median'])}, {seconds(load['total'])} in all (n {load['trials']})")
    for words, tokens in (("tokens in", costs["tokens_in"]), ("tokens out", costs["tokens_out"])):
        if tokens:
            tail = f", median {fast['median']:g} a second" if fast and words == "tokens out" else ""
            lines.append(f"{words}: {tokens['total']}, median {tokens['median']} (n {tokens['trials']}){tail}")
    if spent and spent["total"] >= 1:
        each = f", {seconds(spent['per_passed'])} a passed trial" if spent["per_passed"] is not None else ""
        lines.append(f"time: {seconds(spent['total'])} in all, {spent['share_not_passed']:.0%} on trials that "
                     f"did not pass{each}")
    if paid and paid["total"] is None:
        lines.append("money: unknown, since the trials do not tell their tokens")
    elif paid:
        each = f", {as_text(paid['per_passed'])} a passed trial" if paid["per_passed"] is not None else ""
        told, calls = min(costs[name]["trials"] for name in ("tokens_in", "tokens_out")), system["model_calls"]["trials"]
        all_of = "in all" if told >= calls else f"for the {told} of {calls} model calls that tell their tokens"
        lines.append(f"money: {as_text(paid['total'])} {all_of}{each}, at {paid['price_in']:g} in and "
                     f"{paid['price_out']:g} out a million tokens")
    return lines


def parts_of(system) -> list:
    """[(its name "2/4", how many trials, {fact: value})] of the parts of a plan whose logs were merged."""
    shards = dig(system, "provenance", "shards")
    found = []
    for one in filter(bench.is_shard, shards if isinstance(shards, list) else ()):
        facts = {"server versions": dig(one, "server_versions") or None, "begun": dig(one, "started_at")}
        environment = dig(one, "environment")
        facts.update(flat("", environment) if isinstance(environment, dict) else ())
        trials = dig(one, "trials")
        found.append(("{part}/{of}".format(**one), trials if type(trials) is int else 0,
                      {key: as_text(value) for key, value in facts.items() if value is not None}))
    return found


def part_notes(system) -> list:
    """Which parts of a plan were merged, in what their surroundings differ, and what they lack, a text each."""
    parts, differing = parts_of(system), {}
    if not parts:
        return []
    for name, _, facts in parts:
        for key, value in facts.items():
            differing.setdefault(key, {}).setdefault(value, []).append(name)
    found = [f"merged from {plural(len(parts), 'log')} of parts of the plan: {', '.join(name for name, _, _ in parts)}"]
    found += [f"the parts differ in {key}: " + "; ".join(f"{value} ({', '.join(names)})" for value, names in values.items())
              for key, values in differing.items() if len(values) > 1 and key != "begun"]
    every, ran = {name.partition("/")[2] for name, _, _ in parts}, Counter()
    for name, trials, _ in parts:
        ran[name] += trials
    of, trials = int(every.pop()), system["trials_per_case"]
    lacks = {f"{part}/{of}": system["cases"] * len(bench.rounds_of(trials, {"part": part, "of": of})) - ran[f"{part}/{of}"]
             for part in range(1, of + 1 if not every and of <= trials else 1)}
    told = [f"{plural(count, 'trial')} of part {name}" for name, count in lacks.items() if count > 0]
    return found + [f"not run: {', '.join(told)}"] * bool(told)


def notes(system) -> list:
    """What a reader must know of how the trials came about, a text each."""
    found, ran_on = [], system["runtimes"]
    for key, counts in ran_on.items():
        if len(counts) > 1:
            told = ", ".join(f"{value} ({plural(count, 'trial')})" for value, count in counts.items())
            found.append(f"the trials differ in {RUNTIMES[key]}: {told}")
    at_once = [workers for workers in ran_on.get("workers", {}) if workers != "1"]
    if system["parallel_calls"]:
        found.append(f"{plural(system['parallel_calls'], 'model call')} ran beside others "
                     f"({' and '.join(at_once)} workers): a server that batches them may answer otherwise than alone")
    elif at_once:
        found.append(f"the trials ran with {' and '.join(at_once)} workers")
    if "true" in ran_on.get("reloaded", ()):
        found.append(f"{plural(ran_on['reloaded']['true'], 'model call')} had to load the model, which can change an answer")
    if system["trials_per_case"] > 1 and {"0", "0.0"} & set(ran_on.get("temperature", ())):
        found.append("the temperature is 0: the seed changes nothing, so the trials of a case are one trial")
    subset, again = dig(system, "provenance", "subset"), dig(system, "provenance", "run_again")
    if bench.is_subset(subset):
        found.append(f"only the cases of {shlex.join(subset['words'])}")
    if is_number(again) and again:
        done = "left out to be run again" if system["not_run"] else "run again"
        found.append(f"{plural(again, 'trial')} {'was' if again == 1 else 'were'} {done}: "
                     "there was no reply the first time")
    found += part_notes(system)
    steps = dig(system, "provenance", "extended")
    found += ["extended to {} trials a case after {} trials, at {}".format(*(as_text(dig(step, key)) for key in (
        "trials", "after", "at"))) for step in (steps if isinstance(steps, list) else ())]
    return [f"note: {text}" for text in found]


def format_system(system, record, term, path="") -> list:
    """The report of one system: counts, rate, grid, curve, failures, costs, notes; its path where names are equal."""
    record = compact(record)
    plan = f"{planned(system, 'x')}: "
    numbered = system.get("label", named(system)) != named(system)
    lines = [*fold([title(system), *([path] if numbered else [])], term), plan + verdict_counts(system, term)]
    rounds, counts = whole_rounds(record)
    values = exact_curve(rounds, counts)
    lines += ["", *headline(system, term)]
    if system["not_run"]:
        lines += format_not_run(system, rounds, values, term, path)
    intervals = {name: "-" if "expects_rejection" in case or not case["interval"] else span(case["interval"])
                 for name, case in system["per_case"].items()}
    lines += ["", *bench.grid_lines(record.words(), record.refused, term, ("95 % interval", intervals)), ""]
    if system["curve"]:
        lines += [*format_curve(values, term), ""]
    reasons = {"failed": system["failures_by_check"], "incomplete": causes_of_run(system)}
    told = [f"{word} {sum(counts.values())}: " + ", ".join(f"{name} {count}" for name, count in counts.items())
            for word, counts in reasons.items() if counts]
    lines += fold(told + harness.sureness_words(system.get("sureness")) + cost_lines(system), term)
    return lines + [term.paint(line, "incomplete") for line in fold(notes(system), term)]


def format_gates(verdicts, term) -> list:
    """A line for each gate, and below it the cases that keep it from being met."""
    lines = []
    for verdict in verdicts:
        kind, word = ("pass", "met") if verdict["met"] else ("fail", "NOT MET")
        told = fold([f"{term.glyphs[kind]} {verdict['gate']}: {word}, {verdict['detail']}"], term)
        lines += [term.paint(line, kind) for line in told]
        lines += fold([f"  {case}" for case in verdict.get("cases", ())], term)
    return lines


# Show: text of two systems

def differs_words(comparison) -> list:
    """What is not the same in two runs, in texts; that nothing differs is said, since what they show then is noise."""
    lines = [f"  {what}: {' and '.join('none' if text == 'null' else text for text in both)}" for what, *both in comparison["differs"]]
    if comparison["prompt_lines"]:
        lines += ["  prompt:", *(f"    {line}" for line in comparison["prompt_lines"])]
    return ["what differs:", *lines] if lines else ["the same system, twice: what they differ in is its own noise"]


def shared_words(comparison) -> list:
    """On which trials two runs of different length are compared; none where they have the same."""
    left, names, last = comparison["left_out"], (comparison["a"], comparison["b"]), comparison["trials_per_case"] - 1
    more = " and ".join(f"{count} more of {name}" for count, name in zip(left, names) if count)
    return [f"compared on the trials that both have, {f'0 to {last}' if last else '0'}; {more} left out"] * bool(more)


def shown_p(part) -> float:
    """The p of a test: adjusted where it is one of several."""
    return part.get("p_adjusted", part["p"])


def too_few(units, noun) -> str:
    """Why no test can show a difference: too few units differ."""
    verb = "differs" if units == 1 else "differ"
    return f"{plural(units, noun)} {verb}, and fewer than {LEAST_UNITS} never show a difference"


def finding(comparison) -> str:
    """What a comparison shows, in words."""
    same, new, (passed_a, passed_b) = comparison["same_cases"], comparison["new_cases"], comparison["passed"]
    trials, cases = same["trials_that_differ"], new["cases_that_differ"]
    ahead = comparison["a"] if passed_a > passed_b else comparison["b"]
    points = f"{abs(comparison['difference']) * 100:.1f} points"
    if not any(comparison["flips"]):
        return "no difference: every trial came out the same"
    if shown_p(same) >= LEVEL:
        equal = passed_a == passed_b
        seen = "equal totals, but not of the same trials" if equal else f"{ahead} passed {points} more"
        few = too_few(trials, "trial") if trials < LEAST_UNITS else None
        return f"{seen}: no difference shown ({few or p_text(shown_p(same))})"
    these = "this case" if comparison["cases"] == 1 else f"these {comparison['cases']} cases"
    better = f"{ahead} is better by {points} on {these} ({p_text(shown_p(same))})"
    if shown_p(new) < LEVEL:
        return f"{better}, and on new cases like these ({p_text(shown_p(new))})"
    few = too_few(cases, "case") if cases < LEAST_UNITS else None
    return f"{better}; not shown for new cases ({few or p_text(shown_p(new))})"


def why_none(comparison, scope) -> str:
    """Why a difference has no interval."""
    if comparison["trials_per_case"] == 1:
        return "one trial a case"
    return "one case" if scope == "new_cases" and comparison["cases"] == 1 else "no variation"


def comparison_rows(comparison) -> list:
    """[(what, 95 % interval, p)] in words: the difference, then for new trials, new cases and the model calls."""
    total, calls = comparison["cases"] * comparison["trials_per_case"], comparison["model_calls"]
    counts = "passed {} and {} of {}: {:+.3f}".format(*comparison["passed"], total, comparison["difference"])
    rows = [(counts, "95 % interval", "")]
    for words, scope in (("  these cases, new trials", "same_cases"), ("  new cases like these", "new_cases")):
        interval, p = comparison[scope]["interval"], shown_p(comparison[scope])
        rows.append((words, span(interval, "+") if interval else f"none: {why_none(comparison, scope)}", p_text(p)))
    if 0 < calls["trials"] < total:
        rows.append(("  model calls only: {} and {} of {}: {:+.3f}".format(*calls["passed"], calls["trials"], calls["difference"]), "", ""))
    return rows


def some_of(names) -> str:
    """The first of many names, and how many more there are."""
    more = [f"and {len(names) - MOST_LISTED} more"] if len(names) > MOST_LISTED else []
    return ", ".join([*names[:MOST_LISTED], *more])


def comparison_words(comparison) -> list:
    """What a comparison shows, the trials and cases that only one of them passed, and indented their names."""
    a, b, folds, flips, same = (comparison[key] for key in ("a", "b", "folded", "flips", "same_cases"))
    told = [finding(comparison), f"trials that only one of them passed: {a} {flips[0]}, {b} {flips[1]}"]
    for label, counts in ((a, comparison["more_in_a"]), (b, comparison["more_in_b"])):
        if counts:
            cases = sorted(counts.items(), key=lambda one: -abs(one[1][0] - one[1][1]))
            told.append(f"  passed more often by {label}: {some_of([f'{name} {x} to {y}' for name, (x, y) in cases])}")
    told.append(f"cases in which {FOLDS[folds['policy']][0]} for only one of them: {a} {len(folds['only_a'])}, "
                f"{b} {len(folds['only_b'])} ({p_text(folds['p'])}, McNemar)")
    told += [f"  only {label}: {some_of(names)}" for label, names in ((a, folds["only_a"]), (b, folds["only_b"])) if names]
    told += [INVERTED] * ("p_by_inversion" in comparison) + [HOLM] * ("p_adjusted" in same)
    return told + harness.divergence_words(comparison.get("tokens"), a, b)


def format_comparison(comparison, term) -> list:
    """Two systems on the same cases: difference, intervals, tests, folded verdicts and the cases behind them."""
    head = f"{comparison['a']} against {comparison['b']}"
    if "not_compared" in comparison:
        return fold([f"{head}: no comparison, {comparison['not_compared']}"], term)
    return fold([f"{head}, trials paired by number", *differs_words(comparison), *shared_words(comparison), *in_columns(comparison_rows(comparison)),
                 *comparison_words(comparison)], term)


# Show: text of several systems

def beside_reference(report, system) -> tuple:
    """The difference of a system to the one that the others are compared with, and its p, in words; "" each where none is."""
    for one in report["comparisons"]:
        if (one["a"], one["b"]) == (report.get("reference"), system["label"]) and "not_compared" not in one:
            part = one["model_calls"] if one["model_calls"]["trials"] else {**one, **one["same_cases"]}
            return f"{0 - part['difference']:+.3f}", p_text(shown_p(part)).replace("p = ", "").replace("p ", "")
    return "", ""


def glance(report) -> list:
    """The columns of a table of all systems beside their names: [(rank, head, short head, a text for each system)], of which
    those of the highest rank give way where there is no room."""
    systems, k, rows = report["systems"], min(system["trials_per_case"] for system in report["systems"]), []
    for system in systems:
        found, timed, fast, trials = rates(system), system["latency_s"], system["costs"]["tokens_per_s"], system["trials_per_case"]
        cases = [case for case in system["per_case"].values() if "expects_rejection" not in case] or list(system["per_case"].values())
        often = Counter(harness.how_often(case["pass"], trials - case["not_run"]) for case in cases)
        power = mean([pass_power_k(trials, case["pass"], k) for case in cases])
        rows.append((f"{found[0][1] / found[0][2]:.3f}" if found else "",
                     *([span(row[3]) if row[3] else "" for row in found[:2]] or ("", "")),
                     f"{often['always']}/{often['sometimes']}/{often['never']}", f"{power:.3f}" if found else "",
                     str(sum(causes_of_run(system).values())), seconds(timed["median"]) if timed["trials"] else "",
                     f"{fast['median']:g}" if fast else "", *beside_reference(report, system)))
    p = "p (Holm)" if any("p_adjusted" in one.get("model_calls", ()) for one in report["comparisons"]) else "p"
    heads = ((0, "pass rate", "rate"), (1, "these cases, new trials", "new trials"), (9, "new cases like these", "new cases"),
             (2, "always / sometimes / never", "a/s/n"), (5, f"pass^{k}", f"pass^{k}"), (7, "incomplete", "inc."),
             (6, "median latency", "median"), (8, "tokens/s", "tok/s"), (3, "difference", "diff"), (4, p, p))
    return [(*head, texts) for head, texts in zip(heads, zip(*rows)) if any(text not in ("", "0") for text in texts)]


def glance_words(report) -> str:
    """What the table of all systems is about."""
    calls, of = report["systems"][0]["model_calls"], report["systems"][0]["cases"]
    about = f"the {plural(calls['cases'], 'case')} that need a model call" if 0 < calls["cases"] < of else f"all {plural(of, 'case')}"
    against = f"; difference to {report['reference']}" if "reference" in report else ""
    return f"rate, 95 % intervals, a/s/n (cases that passed always, sometimes, never) of {about}{against}"


def unequal_words(report) -> list:
    """That systems differ in their trials, where they do."""
    trials = {system["trials_per_case"] for system in report["systems"]}
    return [f"the systems have {harness.listed(sorted(map(str, trials)), 'and')} trials a case: a difference is that of the "
            "trials that both have"] if len(trials) > 1 else []


def across_order(report) -> list:
    """All cases, those that separate the systems most first."""
    return report["separating"] + [name for name in report["systems"][0]["per_case"] if name not in {*report["separating"]}]


def across_count(system, name) -> tuple:
    """(how many trials of a case passed of those that ran, the share)."""
    case, trials = system["per_case"][name], system["trials_per_case"]
    ran = trials - case["not_run"]
    return f"{case['pass']}/{ran}", case["pass"] / ran if ran else 0


def format_glance(report, term) -> list:
    """All systems in one table as wide as the terminal, without the columns that matter least where it is narrow."""
    columns = [(rank, [short, *texts], max(map(len, [short, *texts]))) for rank, _, short, texts in glance(report)]
    names = ["system", *(f"{number} {system['label']}" for number, system in enumerate(report["systems"], start=1))]
    longest = max(bench.columns(printable(name)) for name in names)
    while columns and term.width - sum(width + 2 for *_, width in columns) < min(longest, 22):
        columns.remove(max(columns))
    room = min(longest, term.width - sum(width + 2 for *_, width in columns))
    lines = [term.cut(name, room) + "".join(f"  {texts[row]:>{width}}" for _, texts, width in columns)
             for row, name in enumerate(names)]
    return [line.rstrip() for line in lines] + fold([glance_words(report), *unequal_words(report)], term)


def format_across(report, term) -> list:
    """How often each case passed with each system, numbered as in the table, the cases that separate them most first."""
    order, systems = across_order(report), report["systems"]
    shown = order[:bench.MOST_ROWS]
    cells = {name: [across_count(system, name) for system in systems] for name in shown}
    wide = max(5, *(len(told) for counts in cells.values() for told, _ in counts))
    room = min(max(map(bench.columns, map(printable, [*shown, "case"]))), max(8, term.width - len(systems) * (wide + 2)))
    fits = (term.width - room) // (wide + 2)
    lines = [term.cut("case", room) + "".join(f"  {number:>{wide}}" for number in range(1, len(systems) + 1)[:fits])]
    lines += [term.cut(name, room) + "".join("  " + term.shade(f"{told:>{wide}}", share) for told, share in counts[:fits])
              for name, counts in cells.items()]
    rest = [f"not shown: {plural(len(order) - len(shown), 'case')} that separate the systems less"] * (len(shown) < len(order))
    rest += [f"not shown: {plural(len(systems) - fits, 'system')}, for which the terminal is too narrow"] * (fits < len(systems))
    return lines + fold(rest, term)


# Show: failures

def reply_of(row) -> str:
    """What a trial answered: its output, else the raw reply."""
    if row["output"] is not None:
        return json.dumps(row["output"], ensure_ascii=False)
    return as_text(row["metadata"].get("reply", "(no reply)")) or "(empty reply)"


def answer_groups(rows) -> list:
    """The trials of a case in lists of equal verdict, reason and answer: the longest first, but passes last."""
    groups = {}
    for row in rows:
        reply = row["metadata"].get("reply") if row["output"] is None else None
        key = row["verdict"], row["check"], row["reason"], harness.canonical([row["output"], reply])
        groups.setdefault(key, []).append(row)
    return sorted(groups.values(), key=lambda group: (group[0]["verdict"] == "pass", -len(group)))


def format_group(group, term, most) -> list:
    """One reply, how often it came, what is wrong with it, and the trials and seeds that brought it."""
    reply, reason = f"  {len(group)}x  {reply_of(group[0])}", why_not_passed(group[0]["check"], group[0]["reason"])
    whole = fold([f"{reply}   {reason}"], term, 2)
    told = " ".join(["trials" if len(group) > 1 else "trial", *(str(row["trial"]) for row in group)])
    seeds = [row["metadata"]["seed"] for row in group if row["metadata"].get("seed") is not None]
    if seeds:
        told += "   " + " ".join(["seeds" if len(seeds) > 1 else "seed", *map(as_text, seeds)])
    return ((whole if len(whole) == 1 else fold([reply, f"      {reason}"], term, most))
            + [term.paint(line, "not run") for line in fold([f"      {told}"], term)])


def fork_of(system, name) -> list:
    """In words where the trials of a case part, as far as log-probabilities tell it."""
    found = dig(system, "sureness", "cases", name, "fork")
    return harness.fork_words(found) if found else []


def format_failures(system, record, cases, term, only=None) -> list:
    """The failing replies of every case, or of the one asked for, equal ones together, with the case's input."""
    record = compact(record)
    lines, most = fold([title(system)], term), None if only else REPLY_LINES
    for name, rows in case_rows(record):
        groups = [group for group in answer_groups(rows) if group[0]["verdict"] != "pass" and has_run(group[0])]
        if name != (only or name) or not groups and not only:
            continue
        case = cases[name]
        lines += ["", *fold([f"{name}  {passed(rows)}/{sum(map(has_run, rows))}  {wanted(case, record.task)}"], term)]
        lines += [line for group in groups for line in format_group(group, term, most)] or ["  no failures"]
        lines += fold([f"  {text}" for text in fork_of(system, name)], term, most)
        lines += fold([f"input: {as_text(case['input'])}"], term, most)
    return lines if len(lines) > 1 else lines + ["no failures"]


# Show: colours and style

# Text of each ink on its ground has a contrast of 4.5 or more: pass on pass-tile, fail-glyph on fail and so on.
LIGHT = {"paper": "#ffffff", "ink": "#1b1f24", "dim": "#57606a", "line": "#d0d7de", "soft": "#f1f3f5",
         "link": "#0b57b0", "pass": "#17632f", "pass-tile": "#dcf2e2", "fail": "#b3261e", "fail-glyph": "#ffffff",
         "doubt": "#7a5600", "doubt-tile": "#ffd866", "doubt-glyph": "#4a3500", "any": "#0b57b0", "all": "#a04000"}
DARK = {"paper": "#14171a", "ink": "#e6e8eb", "dim": "#a3abb4", "line": "#3a424a", "soft": "#22272c",
        "link": "#85b8ff", "pass": "#7ee29a", "pass-tile": "#1b3d28", "fail": "#ff8f85", "fail-glyph": "#2b0806",
        "doubt": "#f0c24b", "doubt-tile": "#f0c24b", "doubt-glyph": "#2b1d00", "any": "#85b8ff", "all": "#ffa766"}
SVG_CSS = """\
svg { color: var(--ink); } .pass { color: var(--pass); } .fail { color: var(--fail); } .incomplete { color: var(--doubt); }
.absent, .dim { color: var(--dim); } .any { color: var(--any); } .all { color: var(--all); }
svg text { font: 12px system-ui, sans-serif; fill: currentColor; } svg .name { font-family: ui-monospace, monospace; }
svg .head { font-size: 15px; font-weight: 600; } svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg path { fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linecap: round; stroke-linejoin: round; }
svg .rule { stroke: var(--line); stroke-width: 1; } svg .range { stroke: var(--dim); stroke-width: 3; }
svg .bar, svg .tile, svg .band { fill: currentColor; stroke: none; } svg .tile.pass { fill: var(--pass-tile); }
svg .tile.incomplete { fill: var(--doubt-tile); } svg .tile.absent { fill: var(--soft); }
svg .glyph.fail { color: var(--fail-glyph); } svg .glyph.incomplete { color: var(--doubt-glyph); } svg .band { fill-opacity: .16; }
svg .curve.all { stroke-dasharray: 6 4; } svg .mark, svg .paper { fill: var(--paper); }
"""
PAGE_CSS = "".join(f"section:has(> .filter .show-{kind}:not(:checked)) > .grid .{kind} {{ display: none; }}\n" for kind in (
    "always", "sometimes", "never", "differ", "equal")) + """\
:root { color: var(--ink); background: var(--paper); color-scheme: light dark; }
body { max-width: 68rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; font: 1rem/1.5 system-ui, sans-serif; }
body, bdi, pre { overflow-wrap: anywhere; } h1, h2, h3, h4, h5 { line-height: 1.25; margin: 1rem 0 .25rem; font-size: 1rem; }
h1 { margin-top: 0; font-size: 2rem; }
h2 { border-top: 2px solid var(--line); margin-top: 2rem; padding-top: 1.5rem; font-size: 1.5rem; }
h3 { margin: 2rem 0 .5rem; font-size: 1.125rem; } p, ul { margin: .25rem 0; max-width: 46rem; } ul { padding-left: 1.25rem; }
.legend > span, .filter label { margin-right: 1rem; white-space: nowrap; } .notes { list-style: none; padding: 0; }
small, caption, figcaption, dt, thead th { color: var(--dim); font-size: .875rem; font-weight: 400; } a { color: var(--link); }
:focus-visible { outline: 2px solid var(--link); outline-offset: 1px; }
.skip:not(:focus) { position: absolute; clip-path: inset(50%); } .rate { font-size: 1.25rem; margin-top: 1rem; }
.rate b { font-size: 2.25rem; line-height: 1; } .beside { display: flex; flex-wrap: wrap; align-items: center; gap: 0 2rem; }
figure { margin: .5rem 0; flex: 0 1 30rem; } figure svg { width: 100%; height: auto; }
pre { margin: 0; font-size: .8125rem; white-space: pre-wrap; } .scroll { overflow-x: auto; margin: .75rem 0; min-width: 0; }
table { border-collapse: collapse; overflow-wrap: normal; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .25rem; }
th, td { padding: .25rem 1rem .25rem 0; border-bottom: 1px solid var(--line); }
th, td { font-size: .9375rem; text-align: left; font-weight: 400; vertical-align: baseline; }
:is(th, td):has(> bdi) { min-width: 5rem; } tbody th:has(bdi) { min-width: 8rem; } .number { text-align: right; }
td.number { white-space: nowrap; }
[class^=share] { display: block; padding: 0 .5rem; border-radius: 3px;
  background: linear-gradient(90deg, var(--pass-tile) var(--share), var(--soft) var(--share)); } .share0 { --share: 0%; }
.share1 { --share: 25%; } .share2 { --share: 50%; } .share3 { --share: 75%; } .share4 { --share: 100%; }
.filter { border: 1px solid var(--line); border-radius: 3px; margin: .5rem 0; padding: .25rem .75rem; }
.grid { border-collapse: separate; border-spacing: 2px 3px; width: 100%; margin: .75rem 0; }
.grid :is(th, td) { border: 0; padding: 0 .5rem 0 0; box-sizing: border-box; }
.grid thead th { position: sticky; top: 0; z-index: 1; background: var(--paper); } .grid tr { scroll-margin: 30vh; }
.grid tr:target > th { box-shadow: inset 0 -2px var(--link); }
.grid .trial { padding: 0; text-align: center; width: 1.65rem; min-width: 1rem; }
.grid .trial a { display: block; border-radius: 3px; font-weight: 600; text-decoration: none; color: inherit; }
.pass > a { background: var(--pass-tile); } .grid .fail > a { color: var(--fail-glyph); background: var(--fail); }
.grid .incomplete > a { color: var(--doubt-glyph); background: var(--doubt-tile); }
.absent > a, .trials svg { background: var(--soft); } .grid .trials { width: 60%; vertical-align: middle; }
.trials svg { display: block; width: 100%; height: 1.125rem; } .trials span + span { float: right; }
.grid .number { padding: 0 .75rem; white-space: nowrap; } .grid .number ~ td:not([rowspan]) { white-space: nowrap; }
.grid tbody th { min-width: 9rem; } .number + td > svg { vertical-align: middle; margin-right: .5rem; }
.pair tbody { border-top: 1px solid var(--line); } .pair [rowspan] { vertical-align: top; } .pair { border-collapse: collapse; }
.pair .trial { border: 1px solid var(--paper); border-width: 1px 2px; } .case, .answers > h2, .close { display: none; }
.case:target, .case:has(:target) { display: block; position: fixed; inset: auto 0 0; z-index: 1; max-height: 50vh; overflow: auto;
  padding: 0 max(1rem, 50vw - 33rem) 2.5rem; background: var(--paper); border-top: 2px solid var(--link);
  box-shadow: 0 -4px 24px #0006; } body:has(.case:target, .case :target) { padding-bottom: 55vh; }
.case h3 { position: sticky; top: 0; z-index: 1; padding: .75rem 0; background: var(--paper); }
:has(> .case:target, > .case :target) > .close { display: block; position: fixed; inset: auto 0 0; z-index: 2; margin: 0;
  max-width: none; padding: .5rem max(1rem, 50vw - 33rem); background: var(--paper); }
.columns { display: flex; flex-wrap: wrap; gap: .5rem 2rem; } .columns > * { flex: 1 1 20rem; min-width: 0; }
.columns > dl { align-self: start; position: sticky; top: 2.75rem; }
article { border-left: 4px solid; padding-left: .75rem; margin: 0 0 .75rem; scroll-margin: 7rem; }
article:target { background: var(--soft); } .case :is(h3, h4, h5) { margin: 0; font-size: 1rem; }
dl { display: grid; grid-template-columns: 5.5rem 1fr; align-items: baseline; gap: 0 .75rem; margin: 0; }
dd { margin: 0; min-width: 0; color: var(--ink); } .tokens { font: .8125rem/1.8 ui-monospace, monospace; white-space: pre-wrap; }
.tokens, .tokens ~ .scroll { color: var(--ink); } .tokens ~ .scroll bdi { white-space: pre-wrap; }
.tokens span { border-radius: 2px; padding: 2px 0; border-right: 1px solid var(--paper); }
.t1 { --share: 12%; } .t2 { --share: 24%; } .t3 { --share: 36%; }
.tokens :is(.t1, .t2, .t3) { background: color-mix(in srgb, var(--fail) var(--share), var(--paper)); }
.tokens .t4 { background: var(--fail); color: var(--fail-glyph); }
@supports not selector(:has(a)) { .case, .answers > h2 { display: block; } }
@media screen and (max-width: 48rem) {
  body { padding: 1rem .75rem 4rem; } .columns > dl { position: static; }
  th, td, thead th { padding-right: .375rem; font-size: .75rem; } td.number { white-space: normal; }
  :is(th, td):has(> bdi) { min-width: 3rem; } tbody th:has(bdi) { min-width: 7rem; } [class^=share] { padding: 0; }
  .scroll th:first-child { position: sticky; left: 0; background: var(--paper); } .scroll caption { max-width: 94vw; }
  table:has([data-head]) { display: block; } table:has([data-head]) :is(tbody, caption) { display: block; }
  table:has([data-head]) thead, td:has([data-head]:empty) { display: none; } th:has(+ td > [data-head]) { flex: 1 0 100%; }
  tr:has([data-head]) { display: flex; flex-wrap: wrap; border-bottom: 1px solid var(--line); gap: 0 .75rem; }
  tr:has([data-head]) > * { border: 0; text-align: left; } [data-head]::before { content: attr(data-head) " "; color: var(--dim); }
  .grid, .grid :is(caption, thead, tbody, tfoot) { display: block; }
  .grid tr { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 1px; padding: .25rem 0; }
  .grid tr::after { content: ""; order: 1; flex: 1 0 100%; } .grid tr > * { order: 2; min-width: 0 !important; }
  .grid tr > :is(th:first-child, .trials) { order: 0; flex: 1 0 100%; }
  .grid tr > .trial { order: 0; flex: 1 1 0; font-size: .75rem; } .grid tr > .trials { align-self: center; }
  .grid td:empty:not(.trial), .grid thead th:not(.trial, .trials) { display: none; }
  .grid .number { padding: 0 .75rem 0 0; text-align: left; } .pair thead tr { padding: 0 5rem 0 4.5rem; }
  .pair tbody tr > * { order: 1; } .pair tbody tr > [rowspan] { order: 0; flex: 0 0 30%; }
  .pair tbody tr > th[rowspan] { flex: 1 0 65%; } .pair tbody tr > th:not([rowspan]) { order: 1; flex: 0 0 4.5rem; }
  .pair tbody tr > .trials { order: 1; flex: 1 1 40%; } .pair tbody tr > .trial { order: 1; }
  .pair tbody tr > .number { flex: 0 0 5rem; padding-left: .25rem; } .pair tr::after { display: none; }
}
@media print {
  :root { font-size: 9pt; print-color-adjust: exact; } body { max-width: none; padding: 0 !important; }
  a { color: inherit; text-decoration: none; } .close, .skip, .hint, .filter { display: none !important; }
  .case, .answers > h2 { display: block !important; } ::details-content { content-visibility: visible; block-size: auto; }
  body:has(.show-always:not(:checked)) .case.always { display: none !important; }
  .case, .case h3, .columns > dl, .grid thead th { position: static !important; max-height: none !important; }
  .case, .case h3 { border: 0 !important; box-shadow: none !important; padding: .5rem 0 !important; } .scroll { overflow: visible; }
  .beside, article, tr, .pair tbody { break-inside: avoid; } h2, h3, h4, h5, caption { break-after: avoid; }
}
"""
CLASSES = {"pass": "pass", "fail": "fail", "incomplete": "incomplete", "not run": "absent"}
NOTE_CLASSES = {"flaky": "incomplete", "unsteady": "incomplete", "never": "fail"}
# Around the middle of a cell: a glyph for a tile or, where tiles would be too narrow, a bar up, down or between.
GLYPH_PATHS = {"pass": "m-4 0 3 3 5-6", "fail": "m-3.5-3.5 7 7m0-7-7 7", "incomplete": "m0-4.5v5m0 3.5v.1", "not run": "m-1 0h2"}
BARS = {"pass": (-6, 0), "fail": (0, 6), "incomplete": (-3, 3), "not run": (-.5, .5)}
MOST_TILES, MOST_GAPS, MOST_BARS = 17, 60, 240
CURVES = (("any", "pass_at_k", "at least one of k passes (pass@k)", "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0"),
          ("all", "pass_power_k", "all k pass (pass^k)", "m-3-3h6v6h-6z"))
QUARTERS = (0, .25, .5, .75, 1)
PLAIN = bench.Terminal(10 ** 9, False, bench.VERDICT_GLYPHS)     # words without colours, never broken
# The picture is as wide as a README; where its columns are, and what fits into them.
WIDTH, NAME_X, CELLS_X, COUNT_X, INTERVAL_X, NOTE_X = 840, 24, 208, 530, 550, 734
NAME_LETTERS, CELLS_WIDTH, INTERVAL_WIDTH, MOST_CASES = 24, 240, 166, 60
HOW_TO_READ = (
    "Each trial of a case has its own seed, which all cases share. pass@k is the chance that at least one of k "
    "trials passes, pass^k that all k do; both are averaged over the cases. An incomplete trial brought no answer "
    "to judge and counts as not passed. A flaky case passed in some of its trials and not in others.")
FLIPS, FLIP_BARS, FLIP_KINDS = {"a": "▲", "b": "▼"}, {"a": (-6, 0), "b": (0, 6)}, {"a": "any", "b": "all"}
MANY_CASES, STEADY = 30, ("always", "equal")    # of so many cases those of which there is least to say start hidden
# A page is to stay under some 5 MB whatever it tells; the log has all of what is cut.
REPLY_LETTERS, PAGE_LETTERS, MOST_ROWS, MOST_TILES_ACROSS, MOST_TILES_ON_PAGE, MOST_LINKS = (2000, 1_500_000, 2400, 25, 20_000, 50)
# Forbidden by XML, an error to HTML: the last two of each plane, and 32 more.
PLANE_ENDS = "".join(chr(end - 1) + chr(end) for end in range(0xffff, 0x110000, 0x10000))
NONCHARACTERS = re.compile(f"[\ufdd0-\ufdef{PLANE_ENDS}]")


def escaped(text) -> str:
    """Anybody's text for HTML and XML, attributes included: printable, and nothing in it is markup."""
    return escape(NONCHARACTERS.sub(lambda found: ascii(found.group())[1:-1], printable(text)))


def isolated(text) -> str:
    """Anybody's text inside a sentence: right-to-left letters leave the order of the rest alone."""
    return f"<bdi>{escaped(text)}</bdi>"


def shortened(text, letters: int, tail: int = 0) -> str:
    """A text cut to so many letters, tail of them from its end; a wide one counts twice, on every Python."""
    text = printable(text if tail else text[:letters + 1])
    ends = list(accumulate(2 if ord(letter) >= 0x1100 else 1 for letter in text))
    if not text or ends[-1] <= letters:
        return text
    kept = sum(end < letters - tail for end in ends)
    return text[:kept] + "…" + text[sum(end <= ends[-1] - tail for end in ends):]


def variables(colours) -> str:
    return "".join(f"--{name}: {colour}; " for name, colour in colours.items())


def picture_css() -> str:
    """The style of a picture that stands alone: without variables, which not every viewer of pictures knows."""
    light, dark = (re.sub(r"var\(--([\w-]+)\)", lambda found: colours[found[1]], SVG_CSS) for colours in (LIGHT, DARK))
    return f"{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n"


# Show: words for page and picture

def case_told(case, verdicts) -> tuple:
    """(how many trials of a case passed, of how many that ran, its interval or None, its note)."""
    refused = "expects_rejection" in case
    return case["pass"], len(verdicts) - case["not_run"], None if refused else case["interval"], bench.case_note(verdicts, refused)


def heading(system) -> str:
    """What was measured, and on what, in one line."""
    return title(system).replace("  ", " · ")


def plan_words(system) -> str:
    """The plan and how its trials ended: "9 cases × 10 trials: 77 passed, 13 failed"."""
    return f"{planned(system, '×')}: {verdict_counts(system, PLAIN)}"


def few_k(values) -> list:
    """The k of a curve that are told in numbers."""
    return [k for k in FEW_K if k < len(values)] + [len(values)]


def curve_of(system) -> tuple:
    """(a curve or None, its band or None, its name): of a stopped run the curve of its complete rounds."""
    if system["curve"]:
        band = ", with bands: 95 % intervals for new cases like these" if system["curve_band"] else ""
        trials = plural(system["cases"] * system["trials_per_case"], "trial")
        return system["curve"], system["curve_band"], f"Curve of all {trials}{band}"
    rounds = system["curve_complete_rounds"]
    return rounds["curve"], None, f"Curve of the {plural(rounds['rounds'], 'complete round')} alone"


def curve_words(values) -> str:
    """A curve at a few k: "k 1: at least one passes 0.856, all pass 0.856; k 2: …"."""
    told = [(k, values[str(k)]["pass_at_k"], values[str(k)]["pass_power_k"]) for k in few_k(values)]
    return "; ".join(f"k {k}: at least one passes {at_k:.3f}, all pass {power_k:.3f}" for k, at_k, power_k in told)


# Show: drawing

def at(*numbers) -> str:
    """Coordinates to a tenth: (12.0, 3.14) → "12 3.1"."""
    return " ".join(f"{number:.1f}".removesuffix(".0") for number in numbers)


def svg_text(x, y, text, kind="") -> str:
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{at(x)}" y="{at(y)}"{kind}>{escaped(text)}</text>'


def svg_path(kind, path) -> str:
    return f'<path class="{kind}" d="{path}"/>'


def svg_open(width, height, name, words, ident="") -> list:
    """The start of a picture, with its name and what it shows in words for who cannot see it."""
    return [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {at(width, height)}" width="{at(width)}" '
            f'height="{at(height)}" role="img" aria-labelledby="{ident}name {ident}words">',
            f'<title id="{ident}name">{escaped(name)}</title>', f'<desc id="{ident}words">{escaped(words)}</desc>']


def interval_drawing(interval, won, of, x, y, width) -> str:
    """A pass rate as a dot on its interval, along a width that stands for 0 to 1; "" without one."""
    if not interval:
        return ""
    low, high = (x + limit * width for limit in interval)
    dot = f'<circle cx="{at(x + won / of * width)}" cy="{at(y)}" r="4" fill="currentColor"/>'
    return svg_path("range", f"M{at(low, y)}H{at(high)}") + dot


def tiles_drawing(verdicts, x, y, pitch, height=18) -> list:
    """A tile with a glyph for each trial, all of one verdict in two paths."""
    lines = []
    for verdict, kind in CLASSES.items():
        middles = [x + (trial + .5) * pitch for trial, one in enumerate(verdicts) if one == verdict]
        if middles:
            tiles = [f"M{at(middle - pitch / 2 + 1, y - height / 2)}h{at(pitch - 2)}v{height}h{at(2 - pitch)}z"
                     for middle in middles]
            glyphs = [f"M{at(middle, y)}{GLYPH_PATHS[verdict]}" for middle in middles]
            lines += [svg_path(f"tile {kind}", "".join(tiles)), svg_path(f"glyph {kind}", "".join(glyphs))]
    return lines


def bars_drawing(verdicts, x, y, pitch, shapes=BARS, kinds=CLASSES, gaps=MOST_GAPS) -> list:
    """A bar for each trial, up, down or between, without gaps where they are many; its height is the share of a
    verdict where a bar stands for several trials. All of one verdict are in one path."""
    size = -(-len(verdicts) // MOST_BARS)
    parts = [verdicts[start:start + size] for start in range(0, len(verdicts), size)]
    apart, pitch, lines = len(parts) <= gaps, pitch * len(verdicts) / len(parts), []
    for verdict, (top, bottom) in shapes.items():
        path = ""
        for (share, _), run in groupby(enumerate(parts), lambda one: (
                one[1].count(verdict) / len(one[1]), one[0] if apart else None)):
            place, count = next(run)[0], 1 + sum(1 for _ in run)
            if share:
                width, height = pitch * (.8 if apart else count), (bottom - top) * share
                path += f"M{at(x + place * pitch, y + top * share)}h{at(width)}v{at(height)}h{at(-width)}z"
        lines += [svg_path(f"bar {kinds[verdict]}", path)] if path else []
    return lines


@dataclass(frozen=True)
class Plot:
    """Where a curve over k = 1 … last stands: a box in pixels, from its bottom to its top a share of 0 to 1."""
    left: float
    top: float
    right: float
    bottom: float
    last: int

    def across(self, k):
        linear = self.last <= 20
        share = (k - 1) / max(1, self.last - 1) if linear else math.log(k) / math.log(self.last)
        return self.left + 8 + share * (self.right - self.left - 16)

    def up(self, share):
        return self.bottom - share * (self.bottom - self.top)

    def path(self, ks, shares) -> str:
        return "M" + "L".join(at(self.across(k), self.up(share)) for k, share in zip(ks, shares))

    def ticks(self) -> list:
        some = FEW_K if self.last > 20 else range(1, self.last)
        return [k for k in some if self.across(self.last) - self.across(k) > 16] + [self.last]


def axes_drawing(plot, cases) -> list:
    """The axes of a curve with their ticks, units and n."""
    lines = [svg_text(plot.left - 36, plot.top - 14, f"chance, mean over {plural(cases, 'case')}", "dim")]
    for share in QUARTERS:
        lines += [svg_path("rule", f"M{at(plot.left, plot.up(share))}H{at(plot.right)}"),
                  svg_text(plot.left - 6, plot.up(share) + 4, f"{share:g}", "dim end")]
    for k in plot.ticks():
        lines += [svg_path("rule", f"M{at(plot.across(k), plot.bottom)}v4"),
                  svg_text(plot.across(k), plot.bottom + 17, str(k), "dim middle")]
    words = f"k of the {plural(plot.last, 'trial')} of a case{', log scale' if plot.last > 20 else ''}"
    return lines + [svg_text((plot.left + plot.right) / 2, plot.bottom + 35, words, "dim middle")]


def curve_drawing(values, band, cases, x, y, width, height) -> list:
    """pass@k and pass^k over k with their bands, axes and legend, in a box whose corner is (x, y)."""
    plot = Plot(x + 36, y + 48, x + width - 46, y + height - 40, len(values))
    ks = sorted({*range(1, min(20, plot.last) + 1), *(1 + (plot.last - 1) * step // 180 for step in range(181))})    # of many about 200
    last, lines = values[str(plot.last)], axes_drawing(plot, cases)
    for kind, key, *_ in CURVES if band else ():
        low, high = ([limits[key][limit] for limits in band.values()] for limit in (0, 1))
        if plot.last > 1:
            at_k = list(map(int, band))
            edges = plot.path(at_k, high) + "L" + plot.path(at_k[::-1], low[::-1])[1:]
            lines.append(svg_path(f"band {kind}", f"{edges}z"))
        else:
            lines.append(svg_path("range", plot.path((1, 1), (*low, *high))))
    # At the right end the two values stand one above the other, even where the curves meet.
    ends = [plot.up(last[key]) for _, key, *_ in CURVES]
    apart = max(14, ends[1] - ends[0])
    for row, (kind, key, words, mark) in enumerate(CURVES):
        start, line = x + 264 * row, plot.path(ks, [values[str(k)][key] for k in ks])
        marks = [plot.path([k], [values[str(k)][key]]) + mark for k in plot.ticks()]
        lines += [svg_path(f"curve {kind}", f"{line}M{at(start, y + 8)}h26"),
                  svg_path(f"mark {kind}", f"{''.join(marks)}M{at(start + 13, y + 8)}{mark}"),
                  svg_text(start + 34, y + 12, words, kind),
                  svg_text(plot.right + 2, sum(ends) / 2 + apart * (row - .5) + 4, f"{last[key]:.3f}", kind)]
    return lines


# Show: the picture

def picture_foot(y, system, pitch) -> tuple:
    """(what stands below the cases, where it ends): the cases that each trial passed, the rates, the scale."""
    lines, each = [svg_path("rule", f"M{at(NAME_X, y)}H{at(WIDTH - NAME_X)}")], system["passed_per_trial"] or []
    if len(each) > 1:
        wide = len(str(max(each))) * 8 + 4 > pitch
        lines.append(svg_text(NAME_X, y + 16, "cases that a trial passed", "dim"))
        lines += [svg_text(CELLS_X, y + 16, f"{min(each)} to {max(each)}", "dim")] if wide else [
            svg_text(CELLS_X + (trial + .5) * pitch, y + 16, str(count), "dim middle") for trial, count in enumerate(each)]
        y += 22
    for words, won, of, interval, _ in rates(system):
        lines += [svg_text(NAME_X, y + 16, words), svg_text(COUNT_X, y + 16, f"{won}/{of}", "end"),
                  interval_drawing(interval, won, of, INTERVAL_X, y + 12, INTERVAL_WIDTH)]
        y += 22
    return lines + [svg_text(INTERVAL_X + share * INTERVAL_WIDTH, y + 18, f"{share:g}", "dim middle") for share in QUARTERS], y + 4


def picture_grid(system, record, top) -> tuple:
    """(the legend, the grid and its intervals, where they end)."""
    by_case, last = compact(record).words(), system["trials_per_case"] - 1
    shown, rest = bench.telling_cases(by_case, MOST_CASES)
    step, pitch = 22 if len(shown) <= 40 else 16, min(26, CELLS_WIDTH / (last + 1))
    occurring = {verdict for verdicts in by_case.values() for verdict in verdicts}
    tiled = last < MOST_TILES
    lines = [svg_text(CELLS_X, top + 32, f"trial 0-{last}" if last else "trial 0", "dim"),
             svg_text(COUNT_X, top + 32, "passed", "dim end"),
             svg_text(INTERVAL_X, top + 32, "pass rate, 95 % interval", "dim")]
    for place, verdict in enumerate(verdict for verdict in CLASSES if verdict in occurring):
        x = NAME_X + 112 * place
        lines += tiles_drawing([verdict], x, top, 26) if tiled else bars_drawing([verdict] * 4, x, top, 6)
        lines.append(svg_text(x + 32, top + 4, bench.VERDICT_WORDS[verdict]))
    bottom = top + 48 + step * len(shown) + 20 * bool(rest)
    foot, end = picture_foot(bottom, system, pitch)
    lines += [svg_path("rule", f"M{at(INTERVAL_X + share * INTERVAL_WIDTH, top + 40)}V{at(end)}") for share in QUARTERS]
    for place, (name, verdicts) in enumerate(shown.items()):
        y = top + 44 + step * (place + .5)
        lines += tiles_drawing(verdicts, CELLS_X, y, pitch, step - 4) if tiled else bars_drawing(verdicts, CELLS_X, y, pitch)
        won, ran, interval, note = case_told(system["per_case"][name], verdicts)
        lines += [svg_text(NAME_X, y + 4, shortened(name, NAME_LETTERS, 8), "name"), svg_text(COUNT_X, y + 4, f"{won}/{ran}", "end"),
                  *[svg_text(NOTE_X, y + 4, note, NOTE_CLASSES.get(note, "dim"))] * bool(note),
                  interval_drawing(interval, won, ran, INTERVAL_X, y, INTERVAL_WIDTH)]
    return lines + [svg_text(NAME_X, bottom - 6, rest, "dim")] * bool(rest) + foot, end + 20


def svg_picture(system: dict, record: dict) -> str:
    """Grid and curve of one system of a report as an SVG that stands alone: no script, nothing from outside."""
    values, band, what = curve_of(system)
    name, words = compact(record).manifest["case_set"]["name"], plan_words(system)
    grid, y = picture_grid(system, record, 78)
    lines = [svg_text(NAME_X, 32, shortened(heading(system), 84), "head"),
             svg_text(NAME_X, 54, shortened(f"{name}, {words}", 110)), *grid]
    if values:
        words += f". {what}: {curve_words(values)}"
        lines += [svg_text(NAME_X, y + 30, what),
                  *curve_drawing(values, band, system["cases"], NAME_X, y + 44, WIDTH - 2 * NAME_X, 256)]
        y += 300
    return "\n".join([*svg_open(WIDTH, y + 20, f"{name}: {heading(system)}", words),
                      f"<style>\n{picture_css()}</style>",
                      f'<rect class="paper" fill="#ffffff" width="{WIDTH}" height="{at(y + 20)}" rx="8"/>', *filter(None, lines),
                      "</svg>", ""])


# Show: the page: a case and its answers

class Page:
    """What the parts of a page share, which is to stay under some 5 MB: the names of all systems, {case: verdicts} of each,
    the numbers of the cases that are shown {name: number} and in words what the others came to, whether a trial is a tile or
    part of a strip, how many letters a text and all answers of a case get; and what one walk over the cases brings: the rows
    of each system's grid and of each comparison's, the answers of each case, when the first and last trial of each system began."""

    def __init__(self, report, records):
        self.report, self.records, self.words = report, records, [record.words() for record in records]
        systems, comparisons = report["systems"], report["comparisons"]
        self.labels = list(dict.fromkeys([*(one["label"] for one in systems), *(one["b"] for one in comparisons)]))
        self.grids, self.pairs, self.told, self.times = [[] for _ in systems], [[] for _ in comparisons], [], [[] for _ in records]
        count, trials = len(systems) + len(comparisons), max(record.trials for record in records)
        together = {name: sum((words[name] for words in self.words), []) for name in self.words[0]}
        shown, self.rest = bench.telling_cases(together, MOST_ROWS // count)
        self.places = {name: number for number, name in enumerate(together) if name in shown}
        self.room = PAGE_LETTERS // max(1, len(shown) * len(self.labels))
        self.text = min(REPLY_LETTERS, max(80, self.room // 4))
        self.tiled = trials <= MOST_TILES_ACROSS and trials * len(shown) * count <= MOST_TILES_ON_PAGE


def verdict_html(verdict) -> str:
    """A verdict's glyph and word: "✓ passed"."""
    return f"{bench.VERDICT_GLYPHS[verdict]} {bench.VERDICT_WORDS[verdict]}"


def preformatted(value, letters=REPLY_LETTERS) -> str:
    """A text with its line breaks, or another value as JSON, cut where it is very long."""
    text = as_text(value)
    lines, more = "\n".join(map(escaped, text[:letters].split("\n"))), len(text) - letters
    cut = f"<small>and {plural(more, 'more character')}, in the log</small>" if more > 0 else ""
    return f"<pre><code>{lines}</code></pre>{cut}"


def terms_html(facts, letters) -> str:
    """[(word, HTML, or [a text to cut])] as a list of terms, without those of no text."""
    told = [(word, isolated(shortened(as_text(fact[0]), letters)) if isinstance(fact, list) else fact)
            for word, fact in facts if fact not in ("", [""], [None])]
    return f"<dl>{''.join(f'<dt>{word}</dt><dd>{fact}</dd>' for word, fact in told)}</dl>"


def asked_html(case, task, letters) -> str:
    """What is known of a case: its input, what is wanted of the answer and why."""
    whys = [("why", [dig(criterion, "why")]) for criterion in case.get("failure_criteria", ())]
    return terms_html([("input", "none" if case["input"] is None else preformatted(case["input"], letters)),
                       ("expectation", [wanted(case, task)]), *whys], letters) if case else ""


def answer_terms(row, case, task, letters) -> list:
    """[(word, HTML or [text])] of what a trial answered: its output, what of that is compared, the raw reply."""
    output, reply, terms = row["output"], row["metadata"].get("reply"), []
    refused = row["check"] == "rejection" or "expects_rejection" in row
    if output is not None or not refused and row["verdict"] != "incomplete":
        terms.append(("output", preformatted(output, letters)))
    elif has_run(row) and reply is None:
        terms.append(("output", f"none{': the input was refused, as it must be' * (row['verdict'] == 'pass')}"))
    terms.append(("compared", ["; ".join(compared_words(output, case, task)) if row["verdict"] != "incomplete" else ""]))
    if reply is not None and as_text(reply) not in (output, as_text(output)):
        terms.append(("raw reply", preformatted(reply, letters) if reply else "(empty)"))
    return terms


def trial_words(row) -> str:
    """A trial with its seed and latency: "3 (seed 1003, 0.44 s)"."""
    seed, latency = row["metadata"].get("seed"), row["metadata"]["recorded_latency_s"]
    facts = ([] if seed is None else [f"seed {as_text(seed)}"]) + ([] if latency is None else [seconds(latency)])
    words = f"{row['trial']} ({', '.join(facts)})" if facts else str(row["trial"])
    return escaped(words).replace(" ", "\N{NO-BREAK SPACE}")


def trial_ranges(group) -> str:
    """The numbers of trials, those in a row as a range: "0-4, 7"."""
    runs = groupby(enumerate(row["trial"] for row in group), lambda one: one[1] - one[0])
    ends = [[trial for _, trial in run] for _, run in runs]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in ends)


def answer_html(ident, group, total, most, case, task, page) -> str:
    """One answer of a case: its verdict, check, reason, output and reply, the trials that gave it, most tokens, their thinking."""
    row, verdict = group[0], group[0]["verdict"] if has_run(group[0]) else "not run"
    terms = [("check", [row["check"]]), ("reason", [row["reason"]]), *answer_terms(row, case, task, page.text)]
    told = "; ".join(map(trial_words, group)) if page.room > 40 * total else trial_ranges(group)
    terms.append(("trial" if len(group) == 1 else "trials", f"<small>{told}</small>"))
    letters = min(page.text, page.room // (2 * total))
    opened = [details_html(f"thinking of trial {one['trial']}", preformatted(one["metadata"]["thinking"], letters))
              for one in group if one["metadata"].get("thinking") and letters > 40]
    return (f'<article id="{ident}" class="{CLASSES[verdict]}"><h5>{verdict_html(verdict)}: {len(group)} of '
            f"{plural(total, 'trial')}</h5>{terms_html(terms, page.text)}{tokens_html(group, most)}{''.join(opened)}</article>")


def shade(share) -> str:
    """The class of a token's probability: "t0" from 90 %, then from 50, 10 and 1 %, "t4" below."""
    return f"t{sum(share < least for least in (.9, .5, .1, .01))}"


def tokens_html(group, most) -> str:
    """The first reply of some whose log-probabilities are known: its tokens shaded by their chance, and as a table."""
    row, tokens = next(((row, tokens) for row in group for tokens in [harness.told_tokens(row["metadata"])] if tokens), (None, []))
    if not tokens or most < 10:
        return ""
    spans, rows = [], []
    for token, value, likely in tokens[:most]:
        first = [token, *sorted(likely, key=likely.get, reverse=True)]
        chances = [harness.percent(math.exp(likely.get(one, value))).replace(" ", "\N{NO-BREAK SPACE}") for one in first]
        texts = [isolated(harness.token_words(one)) for one in first]
        spans.append(f'<span class="{shade(math.exp(value))}" title="{chances[0]}">{escaped(harness.as_bytes(token))}</span>')
        rows.append([texts[0], chances[0], ", ".join(map(" ".join, zip(texts[1:], chances[1:])))])
    more = f"<small>and {plural(len(tokens) - most, 'more token')}, in the log</small>" if len(tokens) > most else ""
    sure = harness.perplexity([value for _, value, _ in tokens])
    return (f'<details><summary>how sure: the tokens of trial {row["trial"]}, perplexity {sure:.2f}</summary>'
            f'<p class="tokens" aria-hidden="true">{"".join(spans)}</p>{more}'
            + page_table("Chances of the tokens; the redder above, the less likely", ["token", "chance", "likeliest there"], rows, [1]) + "</details>")


def answers_html(number, place, groups, figures, fork, case, task, page) -> str:
    """What one system answered to a case, as far as there is room, how long it took, and in words where its trials part."""
    total, articles, left = sum(map(len, groups)), [], page.room
    for index, group in enumerate(groups):
        article = answer_html(f"s{number}c{place}g{index}", group, total, page.room // (400 * len(groups)), case, task, page)
        left -= len(article)
        if articles and left < 0:
            rest = sorted((row for group in groups[index:] for row in group), key=lambda row: row["trial"])
            ids = [f'<a id="s{number}c{place}g{other}"></a>' for other in range(index, len(groups)) if page.tiled]
            articles.append(f"<p>{''.join(ids)}{plural(len(groups) - index, 'more answer')} in the log, of the trials "
                            f"{trial_ranges(rest)}</p>")
            break
        articles.append(article)
    told, timed = f"{figures['pass']}/{total - figures['not_run']} passed", figures["latency_s"]
    told += (f", {plural(figures['distinct_outputs'], 'different output')}, latency median {seconds(timed['median'])}, "
             f"p90 {seconds(timed['p90'])} (n {timed['trials']})") if timed["trials"] else ""
    label = isolated(page.labels[number])
    head = f'<a href="#s{number}r{place}">{label}</a>' if number < len(page.grids) else label
    parts = f'<p class="tokens">{isolated(fork[0])}</p>{list_html(isolated(way.strip()) for way in fork[1:])}' if fork else ""
    return "\n".join([f"<section><h4>{head} <small>{told}</small></h4>{parts}", *articles, "</section>"])


# Show: the page: tables

def table_row(cells, numbers, head="") -> str:
    """A row of HTML cells: the first is its header, those in the columns of numbers stand to the right."""
    made = []
    for column, cell in enumerate(cells):
        tag, scope = ("th", f' scope="{head or "row"}"') if head or not column else ("td", "")
        kind = ' class="number"' if column in numbers else ""
        made.append(f"<{tag}{scope}{kind}>{cell}</{tag}>")
    return f"<tr>{''.join(made)}</tr>"


def page_table(caption, heads, rows, numbers=()) -> str:
    """A table in a box that scrolls by itself where it is too wide; "" without rows."""
    body = [table_row(row, numbers) for row in rows]
    return "\n".join([f'<div class="scroll"><table><caption>{caption}</caption>',
                      f'<thead>{table_row(heads, numbers, "col")}</thead>', "<tbody>", *body,
                      "</tbody></table></div>"]) if body else ""


def list_html(texts, kind="") -> str:
    """A list of HTML texts; "" when there are none."""
    items = "".join(f"<li>{text}</li>" for text in texts)
    return f"<ul{kind}>{items}</ul>" if items else ""


def details_html(summary, content) -> str:
    """What opens below a summary; "" where there is nothing."""
    return f"<details><summary>{summary}</summary>{content}</details>" if content else ""


def why_table(caption, counts, verdict, record, page) -> str:
    """How many trials ended so for each check or cause, and in which cases; "" where none did."""
    found = {}
    for number, name in enumerate(record.cases):
        for (_, check, reason), count in record.endings_of(verdict, record.of(number)).items():
            found.setdefault(check or reason.partition(":")[0], Counter())[name] += count
    rows = []
    for why, count in counts.items():
        links = [f"{name_html(page.places.get(name), name)} {times}" for name, times in found[why].items()]
        more = len(links) - MOST_LINKS
        links[MOST_LINKS:] = [f"and in {plural(more, 'more case')}"] if more > 0 else []
        rows.append([isolated(why), str(count), ", ".join(links)])
    return page_table(caption, [caption.rpartition(" ")[2], "trials", "in the cases"], rows, [1])


def flat(name, value, depth=4) -> list:
    """[(name, value)] inside nested objects, without what is empty: {"a": {"b": 1}} → [("a b", 1)]."""
    if isinstance(value, dict) and depth:
        return [pair for key, inner in value.items() for pair in flat(f"{name} {key}".strip(), inner, depth - 1)]
    return [] if value in (None, "", [], {}) else [(name, value)]


# Show: the page: grids

def name_html(place, name) -> str:
    """A case's name, which opens the case where the page shows it."""
    return isolated(name) if place is None else f'<a href="#c{place}">{isolated(name)}</a>'


def interval_html(interval, won, of) -> str:
    """An interval, drawn small and in numbers; "" without one."""
    drawing = svg_path("rule", "M5 8h110M5 4v8M115 4v8") + interval_drawing(interval, won, of, 5, 8, 110)
    return f'<svg viewBox="0 0 120 16" width="120" height="16" aria-hidden="true">{drawing}</svg>{span(interval)}' if interval else ""


def strip_html(marks, shapes=BARS, kinds=CLASSES) -> str:
    """A cell with a bar for each trial, as wide as there is room; numbers beside it say what it shows."""
    return (f'<td class="trials"><svg viewBox="0 0 {len(marks)} 12" preserveAspectRatio="none" aria-hidden="true">'
            f"{''.join(bars_drawing(marks, 0, 6, 1, shapes, kinds, 0))}</svg></td>")


def cells_html(number, place, verdicts, rows, groups, tiled) -> str:
    """The trials of a case: a cell each that opens its answer, or a strip."""
    if not tiled:
        return strip_html(verdicts)
    group_of, cells = {row["trial"]: index for index, group in enumerate(groups) for row in group}, []
    for row, verdict in zip(rows, verdicts):
        why = f": {row['check'] or cause(row)}" if verdict in ("fail", "incomplete") else ""
        cells.append(f'<td class="trial {CLASSES[verdict]}"><a href="#s{number}c{place}g{group_of[row["trial"]]}" '
                     f'title="{bench.VERDICT_WORDS[verdict]}{escaped(why)}">{bench.VERDICT_GLYPHS[verdict]}</a></td>')
    return "".join(cells)


def grid_row(number, place, name, verdicts, case, cells) -> str:
    """One case of a grid: its trials, passed of those that ran, interval, note."""
    won, ran, interval, note = case_told(case, verdicts)
    return (f'<tr id="s{number}r{place}" class="{bench.how_often(verdicts)}"><th scope="row">{name_html(place, name)}'
            f'</th>{cells}<td class="number">{won}/{ran}</td><td>{interval_html(interval, won, ran)}</td>'
            f'<td class="{NOTE_CLASSES.get(note, "dim")}">{note}</td></tr>')


def pair_rows(place, rows, cells, comparison, tiled) -> str:
    """One case of two systems, trial under trial, and below which trials only one of them passed."""
    passes = [[row["verdict"] == "pass" for row in one] for one in rows]
    holds = FOLDS[comparison["folded"]["policy"]][1]
    marks = ["a" if x > y else "b" if y > x else "" for x, y in zip(*passes)]
    flips = " ".join(f"{FLIPS[key]} {marks.count(key)}" for key in "ab" if key in marks)
    x, y = map(sum, passes)
    only = "".join(f"<br>only {isolated(comparison[key])}" for key, one, other in (("a", x, y), ("b", y, x))
                   if holds(one, len(marks)) and not holds(other, len(marks)))
    lines = [f'<th scope="row">{isolated(comparison[key])}</th>{drawn}<td class="number">{count}/{len(marks)}</td>'
             for key, drawn, count in zip("ab", cells, (x, y))]
    if flips:
        drawn = "".join(f'<td class="trial {FLIP_KINDS.get(mark, "")}">{FLIPS.get(mark, "")}</td>' for mark in marks)
        lines.append('<th scope="row">flips</th>'
                     f'{drawn if tiled else strip_html(marks, FLIP_BARS, FLIP_KINDS)}<td class="number">{flips}</td>')
    lines[0] = (f'<th scope="rowgroup" rowspan="{len(lines)}">{name_html(place, rows[0][0]["case_id"])}</th>{lines[0]}'
                f'<td rowspan="{len(lines)}">{x - y:+d}{only}</td>')
    return f'<tbody class="{"differ" if flips else "equal"}"><tr>{"</tr><tr>".join(lines)}</tr></tbody>'


def grid_html(name, caption, hint, kinds, heads, trials, page, bodies) -> str:
    """A grid of trials below what its marks mean. Of many cases boxes show and hide those of a kind, kinds = {kind:
    (words, how many)}; those of which there is least to say start hidden."""
    boxes = [f'<label><input type="checkbox" class="show-{kind}"{"" if kind in STEADY else " checked"}> {words} '
             f"({count})</label>" for kind, (words, count) in kinds.items() if count]
    filtered = len(boxes) > 1 and sum(count for _, count in kinds.values()) >= MANY_CASES
    numbers = "".join(f'<th scope="col" class="trial">{trial}</th>' for trial in range(trials)) if page.tiled else (
        f'<th scope="col" class="trials"><span>trial 0</span> <span>{trials - 1}</span></th>')
    before, after = ("".join(f'<th scope="col">{head}</th>' for head in part) for part in heads)
    return "\n".join([f'<p class="legend">{hint}</p>',
                      f'<fieldset class="filter"><legend>cases</legend>{" ".join(boxes)}</fieldset>' * filtered,
                      f'<table class="{name}"><caption>{caption}</caption>',
                      f'<thead><tr>{before}{numbers}<th scope="col" class="number">passed</th>{after}</tr></thead>', *bodies, "</table>"])


def system_grid(number, system, rows, page) -> str:
    """The grid of one system: a row a case, and below the cases that each trial passed."""
    counts = Counter(bench.how_often(page.words[number][name]) for name in page.places)
    each = system["passed_per_trial"] or []
    ends = {end for name in page.places for end in page.words[number][name]}
    hint = "A cell opens its answer, a name all answers of the case." if page.tiled else (
        "A bar goes up for a trial that passed, down for one that failed. A name opens the answers of the case.")
    legend = " ".join(f'<span class="{CLASSES[end]}">{verdict_html(end)}</span>' for end in CLASSES if end in ends)
    cells = "".join(f'<td class="trial dim">{count}</td>' for count in each) if page.tiled else (
        f'<td class="trials dim">{min(each, default=0)} to {max(each, default=0)}</td>')
    foot = f'<tfoot><tr><th scope="row">cases that a trial passed</th>{cells}<td></td><td></td><td></td></tr></tfoot>'
    kinds = {kind: (f"passed {kind}", counts[kind]) for kind in ("always", "sometimes", "never")}
    return grid_html("grid", "A row a case, a cell a trial", f'{legend} <small class="hint">{hint}</small> '
                     f'<a class="skip" href="#s{number}k">Skip the grid</a>', kinds,
                     (["case"], ["95 % interval", "note"]), system["trials_per_case"], page,
                     ["<tbody>", *rows, "</tbody>", foot * (len(each) > 1)])


def pair_html(comparison, rows, page) -> str:
    """The grids of two systems in one."""
    differ = sum(row.startswith('<tbody class="differ"') for row in rows)
    kinds = {"differ": ("with a flip", differ), "equal": ("without", len(rows) - differ)}
    hint = (f'{FLIPS["a"]} only {isolated(comparison["a"])} passed, {FLIPS["b"]} only {isolated(comparison["b"])} '
            "passed. A name or a cell opens what both answered.")
    words = f"Trial under trial; {FOLDS[comparison['folded']['policy']][0]} for only one system where it says only"
    return grid_html("grid pair", words, f"<small>{hint}</small>", kinds,
                     (["case", "system"], ["difference"]), comparison["trials_per_case"], page, rows)


def add_case(place, name, page) -> None:
    """Add a case to the page: a row of each system's grid, some of each comparison's, and its answers."""
    records, report = page.records, page.report
    rows, figures = [record.rows(place) for record in records], [case_report(record, place) for record in records]
    case, task, groups = records[0].asked.get(name, {}), records[0].task, list(map(answer_groups, rows))
    verdicts = [words[name] for words in page.words]
    cells = [cells_html(number, place, *parts, page.tiled) for number, parts in enumerate(zip(verdicts, rows, groups))]
    for times, one in zip(page.times, rows):
        told = sorted([*times, *(as_text(row["started_at"]) for row in one if row.get("started_at"))])
        times[:] = told[:1] + told[-1:]
    for number, grid in enumerate(page.grids):
        grid.append(grid_row(number, place, name, verdicts[number], figures[number], cells[number]))
    for pair, comparison in zip(page.pairs, report["comparisons"]):
        if "not_compared" not in comparison:
            two, last = [page.labels.index(comparison[key]) for key in "ab"], comparison["trials_per_case"]
            both = [rows[one][:last] for one in two]
            drawn = [cells[one] if len(rows[one]) == last else
                     cells_html(one, place, verdicts[one][:last], rows[one][:last], groups[one], page.tiled) for one in two]
            pair.append(pair_rows(place, both, drawn, comparison, page.tiled))
    forks = [fork_of(system, name) for system in report["systems"]] + [[]] * len(records)
    answers = [answers_html(number, place, *parts, case, task, page) for number, parts in enumerate(zip(groups, figures, forks))]
    steady = " always" * ({*map(bench.how_often, verdicts)} == {"always"})
    page.told += [f'<section class="case{steady}" id="c{place}">',
                  f"<h3>{isolated(name)} <small>{isolated(figures[0]['class'])}</small></h3>",
                  f'<div class="columns">{asked_html(case, task, page.text)}', *answers, "</div></section>"]


# Show: the page: its parts

def summary_html(system) -> str:
    """The pass rate with both intervals in words, or what a stopped run lacks."""
    steady, rows, told = f"<p>{bench.steady_words(system)}</p>", rates(system), []
    if not rows:
        words, command = resume_words(system)
        again = f" <code>{isolated(command)}</code>" if command else "."
        return (f'{steady}\n<p class="rate">{plural(system["not_run"], "trial")} not run</p>\n<p>So there is no curve and '
                f"no interval of the whole. {words[0].upper()}{words[1:]}{again}</p>")
    for what, won, of, interval, why in rows:
        ends = span(interval) if interval else why
        told.append(f"{what}: {won} of {of}, {won / of:.3f}; 95 % interval {ends}" if of > rows[0][2] else
                    f"95 % interval for {what}: {ends}")
    told += [text[0].upper() + text[1:] for text in (*had_passed(system), bench.one_trial_words(system)) if text]
    told += [f"To within {system['planning']['half_width']:g}, {text}" for text in planning_words(system)]
    words, share = bench.rate_words(system).split(": ")
    return f'{steady}\n<p class="rate"><b>{share}</b> {words}</p>\n{list_html(told)}'


def curve_html(number, system, record) -> str:
    """The curve as a picture and as a table at a few k."""
    values, band, what = curve_of(system)
    exact = exact_curve(*whole_rounds(record))
    if not values:
        return "<p>No curve: no round of all cases is complete.</p>"
    ks, most = list(map(str, few_k(values))), system["curve_if_incomplete_passed"]
    told = [("k trials", ks)]
    for words, key in (("at least one passes", "pass_at_k"), ("all pass", "pass_power_k")):
        parts = (words, exact, "{:.3f}".format), ("95 % interval", band, span), ("at most", most, "{:.3f}".format)
        told += [(head, [shown(found[k][key]) for k in ks]) for head, found, shown in parts if found]
    heads, columns = zip(*told)
    caption = f"Chances at a few k, mean over {plural(system['cases'], 'case')}"
    caption += "; at most: had the incomplete trials passed" if most else ""
    return "\n".join(['<div class="beside"><figure>', *svg_open(440, 300, what, curve_words(values), f"s{number}"),
                      *curve_drawing(values, band, system["cases"], 2, 2, 436, 296),
                      f"</svg>\n<figcaption>{what}.</figcaption></figure>",
                      page_table(caption, heads, zip(*columns), range(len(heads))), "</div>"])


def run_words(system, times) -> list:
    """When the trials were run and how the log came about, a text each, as far as the log tells."""
    began, sources = (dig(system, "provenance", key) for key in ("started_at", "from"))
    sources = sources if isinstance(sources, list) else ()
    lines = [f"begun {as_text(one)}" for one in [began or "".join(times[:1])] if one] + [f"last trial begun {one}" for one in times[1:]]
    lines += [f"part {name}: {plural(trials, 'trial')}, {', '.join(f'{key} {value}' for key, value in facts.items())}"
              for name, trials, facts in parts_of(system)]
    lines += [f"trials taken over from another log, sha256 {as_text(dig(one, 'sha256'))[:12]}" for one in sources]
    return lines + [f"{RUNTIMES[key]}: {value} ({plural(count, 'trial')})"
                    for key, counts in system["runtimes"].items() for value, count in counts.items()]


def system_html(number, system, page) -> str:
    """The section of one system."""
    record, rows = page.records[number], page.grids[number]
    failed, incomplete = system["failures_by_check"], causes_of_run(system)
    tables = [why_table("Failed trials by check", failed, "fail", record, page),
              why_table("Incomplete trials by cause", incomplete, "incomplete", record, page)]
    manifest = {**record.manifest, "system": {**record.manifest["system"], "mode": None}}
    identity = [[isolated(name), preformatted(value)] for name, value in flat("", manifest)]
    parts = [f'<section id="s{number}">\n<h2>{isolated(system["label"])}</h2>',
             f"<p>{isolated(heading(system))}<br>{plan_words(system)}</p>", summary_html(system),
             list_html([f"! {escaped(note)}" for note in notes(system)], ' class="notes incomplete"'),
             "<h3>Trials</h3>", system_grid(number, system, rows, page),
             f'<h3 id="s{number}k">Curve</h3>', curve_html(number, system, record),
             "<h3>Failed and incomplete</h3>" if any(tables) else "", *tables,
             "<h3>When, on what, how long</h3>", list_html(map(isolated, run_words(system, page.times[number]) + cost_lines(system))),
             "<h3>How sure</h3>" if "sureness" in system else "",
             list_html([isolated(text.strip()) for text in harness.sureness_words(system.get("sureness"))]),
             "<h3>Plan and identity</h3>",
             page_table("What was measured, by what and on what", ["what", "value"], identity), "</section>"]
    return "\n".join(part for part in parts if part)


def differs_html(comparison) -> str:
    """What is not the same in two systems, with the lines in which their prompts differ."""
    lines, rows = comparison["prompt_lines"], [[isolated("none" if text == "null" else text) for text in row] for row in comparison["differs"]]
    if not lines and not rows:
        return f"<p>{differs_words(comparison)[0].capitalize()}.</p>"
    table = page_table("What differs", ["what", isolated(comparison["a"]), isolated(comparison["b"])], rows)
    return table + (f"<h4>Prompt</h4>{preformatted(chr(10).join(lines))}" if lines else "")


def comparison_html(comparison, rows, page) -> str:
    """Two systems on the same cases: what is found, the difference with both intervals, the two grids in one."""
    head = f"<h3>{isolated(comparison['a'])} against {isolated(comparison['b'])}</h3>"
    if "not_compared" in comparison:
        return f"{head}\n<p>No comparison: {isolated(comparison['not_compared'])}.</p>"
    (counts, *heads), *spans = comparison_rows(comparison)
    found, *told = comparison_words(comparison)
    grid = pair_html(comparison, rows, page)
    if len(page.grids) > 2:
        grid = details_html("Trial under trial", f"<section>{grid}</section>")
    return "\n".join([f"<section>\n{head}\n{differs_html(comparison)}\n<p><b>{isolated(found)}</b></p>",
                      list_html([isolated(text) for text in shared_words(comparison) + told if text[0] != " "]),
                      page_table(f"{counts}, trials paired by number", ["for", heads[0], "p"],
                                 [list(map(escaped, row)) for row in spans]), grid, "</section>"])


def gates_html(verdicts) -> str:
    """The gates that were asked for, each met or not, and the cases that keep one from being met."""
    items = []
    for verdict in verdicts:
        head, *cases = (isolated(line) for line in format_gates([verdict], PLAIN))
        rest = details_html(plural(len(cases) - MOST_LISTED, "more case"), list_html(cases[MOST_LISTED:]))
        items.append(f'<span class="{"pass" if verdict["met"] else "fail"}">{head}</span>{list_html(cases[:MOST_LISTED])}{rest}')
    return list_html(items, ' class="notes"')


def glance_html(report) -> str:
    """All systems in one table, each with a link to its section."""
    columns = glance(report)
    rows = [[f'<a href="#s{number}">{isolated(system["label"])}</a>',
             *(f'<span data-head="{head}">{texts[number]}</span>' for _, head, _, texts in columns)]
            for number, system in enumerate(report["systems"])]
    return page_table(f"The systems; {isolated(glance_words(report))}", ["system", *(head for _, head, *_ in columns)], rows,
                      range(1, len(columns) + 1)) + list_html(map(isolated, unequal_words(report)))


def across_html(report, page) -> str:
    """How often each case passed with each system, those that separate them most first, a darker cell the more often."""
    systems, rows = report["systems"], []
    for name in across_order(report):
        counts = [across_count(system, name) for system in systems]
        rows += [[name_html(page.places[name], name), *(f'<span class="share{round(share * 4)}">{told}</span>'
                                                       for told, share in counts)]] if name in page.places else []
    first, rest = (page_table(caption, ["case", *(isolated(system["label"]) for system in systems)], some, range(1, len(systems) + 1))
                   for caption, some in (("Trials that passed, the cases that separate the systems most first", rows[:MANY_CASES]),
                                         ("Trials that passed, the other cases", rows[MANY_CASES:])))
    return first + details_html(plural(len(rows) - MANY_CASES, "more case"), rest)


def page_pieces(report, records):
    """The pieces of a report and its run records as one page that needs nothing from outside and no script: a piece for each
    case that was read, the text of all with the last."""
    page, name = Page(report, list(map(compact, records))), report["case_set"]["name"]
    for place, case in enumerate(page.words[0]):
        if case in page.places:
            add_case(place, case, page)
        yield ""
    systems, policy = report["systems"], "default-src 'none'; style-src 'unsafe-inline'"
    titled = shortened(f"{name}: {', '.join(system['label'] for system in systems)}", 70)
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {variables(DARK)}}} }}"
    rest = ", ".join(isolated(name) for name in page.words[0] if name not in page.places)
    parts = ['<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
             f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
             '<meta name="viewport" content="width=device-width, initial-scale=1">',
             f"<title>{escaped(titled)}</title>\n<style>\n:root {{ {variables(LIGHT)}}}\n{dark}",
             f"{SVG_CSS}{PAGE_CSS}</style>\n</head>\n<body>\n<h1>{isolated(name)}</h1>",
             *([glance_html(report), across_html(report, page)] if len(systems) > 1 else []),
             "<h2>Comparison</h2>" if page.pairs else "",
             *(comparison_html(*parts, page) for parts in zip(report["comparisons"], page.pairs)),
             "<h2>Gates</h2>" if report["gates"] else "", gates_html(report["gates"]), details_html(page.rest, rest),
             *(system_html(number, system, page) for number, system in enumerate(systems)),
             '<section class="answers">\n<h2>Answers</h2>', *page.told,
             '<p class="close" id="closed"><a href="#closed">close</a></p></section>',
             f"<footer>\n<h2>How to read it</h2>\n<p>{HOW_TO_READ}</p>\n</footer>\n</body>\n</html>\n"]
    yield "\n".join(part for part in parts if part)


def html_page(report: dict, records: list) -> str:
    """A report and its run records as one page."""
    return "".join(page_pieces(report, records))


# Show: formats for other programs

MOST_MARKDOWN, MOST_LINES, MOST_LISTED = 59_900, 120, 20      # bytes; GitHub takes no comment over 65,536
MOST_SPANS = 400        # in a line, which then stays under the 1 MiB that OpenTelemetry's collector reads of one
CSV_COLUMNS = ("system", "case", "class", "trial", "verdict", "check", "reason", "seed", "latency_s", "tokens_in",
               "tokens_out", "reply")


def json_text(report, records, args) -> str:
    return json.dumps(report, indent=2, allow_nan=False) + "\n"


def case_outcome(case, passes, trials) -> str:
    """The element that tells how a case ends as a test, "" where it passes; what could still pass has not failed."""
    open_ones = {"": 0, "skipped": case["not_run"], "error": case["incomplete"]}
    return next((end for end, more in open_ones.items() if passes(case["pass"] + more, trials)), "failure")


def case_reasons(record, where) -> list:
    """What is wrong with the trials of a case, equal reasons together, the most frequent first, those not run last."""
    groups = {}
    for trial, place in enumerate(record.endings[where]):
        if record.table[place][0] != "pass":
            groups.setdefault(place, []).append(trial)
    lines = []
    for place, trials in sorted(groups.items(), key=lambda one: (not one[0], -len(one[1]))):     # 0: not run
        some = " ".join(map(str, trials[:20])) + " …" * (len(trials) > 20)
        lines.append(f"{len(trials)}x  {why_not_passed(*record.table[place][1:])}   trials {some}")
    return lines[:50] + [f"and {len(lines) - 50} more reasons"] * (len(lines) > 50)


def opened(tag, attributes) -> str:
    """The start of an XML element."""
    return " ".join([f"<{tag}", *(f'{key}="{escaped(str(value))}"' for key, value in attributes.items())]) + ">"


def test_case(name, kind, outcome, record, where) -> str:
    """A case as a test of JUnit's; the count stands beside its name, which must not change from run to run."""
    told = "".join(f"{escaped(line)}\n" for line in case_reasons(record, where))
    count, tag, facts = f"[{record.count('pass', where)}/{record.trials} trials]", outcome or "system-out", {}
    if outcome in ("failure", "error"):
        endings = record.endings_of("fail" if outcome == "failure" else "incomplete", where)
        _, check, reason = next(ending for ending in endings if ending != harness.NOT_RUN)
        facts = {"type": check or reason.partition(":")[0], "message": f"{count} {why_not_passed(check, reason)}"}
    else:
        told = f"{count}\n{told}"
    head = {"classname": kind, "name": name, "time": f"{math.fsum(amount(record, 'recorded_latency_s', where)):.6f}"}
    return f"{opened('testcase', head)}{opened(tag, facts)}{told}</{tag}></testcase>\n"


def junit_text(report, records, args):
    """A suite of JUnit's a system, a test a case that passes by the policy with which a comparison folds it."""
    words, passes = FOLDS[report["policy"]]
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n'
    for number, (system, record) in enumerate(zip(report["systems"], map(compact, records))):
        ends = [case_outcome(case, passes, record.trials) for case in system["per_case"].values()]
        began, label = dig(system, "provenance", "started_at"), system["label"]
        facts = {"name": label, "package": report["case_set"]["name"], "id": number, "hostname": "localhost",
                 "tests": len(ends), "failures": ends.count("failure"), "errors": ends.count("error"),
                 "skipped": ends.count("skipped"), "time": f"{math.fsum(amount(record, 'recorded_latency_s')):.6f}",
                 **({"timestamp": began[:19]} if isinstance(began, str) else {})}
        told = {"passes when": words, "trials": record.trials, "model": as_text(system["system"].get("model") or "")}
        yield opened("testsuite", facts) + "\n<properties>"
        yield "".join(f"{opened('property', {'name': key, 'value': value})}</property>" for key, value in told.items())
        yield "</properties>\n"
        for place, (name, outcome) in enumerate(zip(record.names, ends)):
            yield test_case(name, f"{label}.{record.cases[name]}", outcome, record, record.of(place))
        yield "<system-out/><system-err/></testsuite>\n"
    yield "</testsuites>\n"


def cell(value):
    """A value in a table: a text that no spreadsheet takes for a formula, with no control but its line breaks."""
    if value is None or is_number(value):
        return value
    text = as_text(value)
    if text.isprintable() and text[:1].isalpha():       # most are
        return text
    text = "\n".join(map(printable, text.replace("\r\n", "\n").split("\n")))
    formula = text.lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))
    return f"'{text}" if formula and not harness.NUMBER.fullmatch(text) else text


def in_turn(pieces):
    """The pieces of several systems, one a case, joined case by case: so each case is read once for all."""
    return map("".join, zip_longest(*pieces, fillvalue=""))


def csv_rows(system, record):
    """The rows of one system, a piece a case."""
    for name, rows in case_rows(record):
        page = io.StringIO()
        write = csv.writer(page).writerow
        for row in rows:
            told = row["metadata"]
            write(map(cell, (system["label"], name, row["class"], row["trial"], row["verdict"], row["check"], row["reason"],
                             told.get("seed"), told["recorded_latency_s"], told.get("prompt_eval_count"),
                             told.get("eval_count"), told.get("reply", row["output"]))))
        yield page.getvalue()


def csv_text(report, records, args):
    """A row a trial, by case, then system, as RFC 4180 wants it; its reply is what the model said, or else the output."""
    yield "\ufeff" * args.excel + ",".join(CSV_COLUMNS) + "\r\n"
    yield from in_turn(map(csv_rows, report["systems"], records))


def coded(text, before=" ", after=" ", least=1) -> str:
    """Printable text as code of Markdown, in which nothing is markup, a link or a mention: more backticks than are in it."""
    fence = "`" * max([least, *(len(found) + 1 for found in re.findall("`+", text))])
    return f"{fence}{before}{text}{after}{fence}"


def block(lines) -> str:
    """Lines of printable text, not too many, as a block of code."""
    lines = [*lines[:MOST_LINES], *[f"… {len(lines) - MOST_LINES} more lines"] * (len(lines) > MOST_LINES)]
    return coded("\n".join(lines), "text\n", "\n", 3) + "\n"


def gate_list(verdict) -> str:
    """A gate as an item of a list, with the first of the cases that keep it from being met."""
    head, *cases = (coded(shortened(line.strip(), 300)) for line in format_gates([verdict], PLAIN))
    rest = [f"and {plural(len(cases) - MOST_LISTED, 'more case')}"] * (len(cases) > MOST_LISTED)
    return "\n  - ".join([f"- {head}", *cases[:MOST_LISTED], *rest]) + "\n"


def markdown_text(report, records, args) -> str:
    """A report for a pull request or a job's summary that keeps its limit, whatever it tells: gates before the rest."""
    term, columns, systems = bench.Terminal(96, False, bench.VERDICT_GLYPHS), glance(report), report["systems"]
    names = [coded(shortened(name, 300)) for name in (report["case_set"]["name"], *(one["label"] for one in systems))]
    rows = [["system", *(head for _, head, *_ in columns)], ["---"] * (len(columns) + 1),
            *zip([name.replace("|", "¦") for name in names[1:]], *(texts for *_, texts in columns))]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    parts = [(0, f"# {names[0]}\n\n{table}\n{coded(shortened(glance_words(report), 300))}\n\n")]
    for name, system, record, path in zip(names[1:], systems, records, args.firsts):
        parts.append((2, f"## {name}\n\n{block(format_system(system, record, term, path))}\n"))
    told = [format_across(report, term) for _ in systems[1:2]] + [format_comparison(one, term) for one in report["comparisons"]]
    parts += [(1, block(lines) + "\n") for lines in told] + [(0, gate_list(verdict)) for verdict in report["gates"]]
    room, kept = MOST_MARKDOWN, {}
    for place, (_, text) in sorted(enumerate(parts), key=lambda part: part[1][0]):
        if len(text.encode()) <= room:
            kept[place], room = text, room - len(text.encode())
    rest = len(parts) - len(kept)
    return "".join(kept[place] for place in sorted(kept)) + f"\nToo long for this page: {plural(rest, 'part')}.\n" * bool(rest)


def nanoseconds(text):
    """A time of a log in nanoseconds since 1970, or None."""
    try:
        found = datetime.fromisoformat(text)
        passed = found.replace(tzinfo=found.tzinfo or timezone.utc) - datetime(1970, 1, 1, tzinfo=timezone.utc)
    except (TypeError, ValueError, OverflowError):
        return None
    return passed // timedelta(microseconds=1) * 1000 if 0 <= passed.days < 200 * 365 else None


def otlp_value(value) -> dict:
    """A value as OTLP's JSON has it: whole numbers, which are 64 bits wide there, as text."""
    if isinstance(value, list):
        return {"arrayValue": {"values": list(map(otlp_value, value))}}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int) and abs(value) < 1 << 63:
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": printable(as_text(value))}


def otlp_span(ids, name, kind, times, facts) -> dict:
    """A span: (its trace, itself, what it is under) and the attributes that are known."""
    return {**dict(zip(("traceId", "spanId", "parentSpanId"), ids)), "name": printable(name), "kind": kind,
            "startTimeUnixNano": str(times[0]), "endTimeUnixNano": str(times[1]),
            "attributes": [{"key": key, "value": otlp_value(value)} for key, value in facts.items() if value is not None]}


def called_facts(system, told) -> dict:
    """What OpenTelemetry's conventions for generative models tell of a call, without what was asked and answered."""
    options, reason = system.get("options"), told.get("done_reason")
    asked = {name: dig(options, name) for name in ("temperature", "top_p", "top_k")}
    provider = "openai" if dig(options, "url") else "ollama" if dig(options, "num_ctx") else system["name"]
    return {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider, "gen_ai.request.model": system["name"],
            "gen_ai.request.seed": told.get("seed"), "gen_ai.request.max_tokens": dig(options, "num_predict"),
            **{f"gen_ai.request.{name}": float(value) for name, value in asked.items()
               if is_number(value) and abs(value) < 1e300},
            "gen_ai.output.type": "json" if system.get("schema") else None,
            "gen_ai.usage.input_tokens": told.get("prompt_eval_count"), "gen_ai.usage.output_tokens": told.get("eval_count"),
            "gen_ai.response.finish_reasons": [reason] if isinstance(reason, str) else None}


def trial_span(ids, system, suite, row) -> dict:
    """The span of a trial that ran; RunError where its time is not known."""
    told, start, why = row["metadata"], nanoseconds(row.get("started_at")), row["reason"] or ""
    if start is None:
        raise RunError(f"{system['name']}: trial {row['trial']} of {row['case_id']} has no started_at, and spans need times: "
                       "give the log itself, not a run record")
    incomplete = row["verdict"] == "incomplete"
    called = incomplete or row["output"] is not None or "reply" in told     # a refusal asks no model
    facts = {**(called_facts(system, told) if called else {}), "test.suite.name": suite, "test.case.name": row["case_id"],
             "test.case.result.status": None if incomplete else row["verdict"], "benchmark.case.class": row["class"],
             "benchmark.trial": row["trial"], "benchmark.check": row["check"], "error.type": cause(row) if incomplete else None}
    made = otlp_span(ids, f"{'chat' if called else 'refuse'} {system['name']}", 3 if told.get("server_version") else 1,
                     (start, start + round(told["recorded_latency_s"] * 1e9)), facts)
    # An error of a check may quote the reply, which is not told here.
    words = cause(row) if why.startswith("CheckError") else shortened(why, 200)
    return {**made, "status": {"code": 2, "message": words}} if incomplete else made


def otlp_lines(number, system, record, suite):
    """The lines of one system, a piece a case: a span for each trial that ran, and last the run that they are under."""
    trace = harness.sha256(f"{system['recording_sha256']} {number}")
    run, times = (trace[:32], trace[32:48]), []

    def line(spans):
        resource = {"attributes": [{"key": "service.name", "value": otlp_value(system["label"])}]}
        scope = {"scope": {"name": "bench.py", "version": bench.BENCH_VERSION}, "spans": spans}
        ends = [int(span[key]) for span in spans for key in ("startTimeUnixNano", "endTimeUnixNano")]
        times[:] = min([*times, *ends]), max([*times, *ends])
        return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}, separators=(",", ":")) + "\n"

    for name, rows in case_rows(record):
        spans = [trial_span((run[0], harness.sha256(f"{trace} {row['trial']} {name}")[:16], run[1]), system["system"], suite, row)
                 for row in rows if has_run(row)]
        yield "".join(line(spans[start:start + MOST_SPANS]) for start in range(0, len(spans), MOST_SPANS))
    if times:
        counts = {f"benchmark.{word.replace(' ', '_')}": record.count(word) for word in ENDS}
        facts = {"test.suite.name": suite, "benchmark.model": system["system"].get("model"), "benchmark.trials": record.trials}
        yield line([otlp_span(run, f"benchmark {system['label']}", 1, times, {**facts, **counts})])


def otlp_text(report, records, args):
    """Lines of OTLP's JSON, some spans each."""
    suite = report["case_set"]["name"]
    return in_turn(otlp_lines(number, *parts, suite) for number, parts in enumerate(zip(report["systems"], map(compact, records))))


# What writes the format that a name's end asks for: the text of a report, or its pieces.
FORMATS = {".json": json_text,
           ".html": lambda report, records, args: page_pieces(report, records),
           ".svg": lambda report, records, args: svg_picture(report["systems"][0], records[0]),
           ".xml": junit_text, ".csv": csv_text, ".md": markdown_text, ".otlp.jsonl": otlp_text}


def format_of(path):
    """What writes the format that a path's suffix names, or None."""
    return next((made for suffix, made in FORMATS.items() if path.lower().endswith(suffix)), None)


# Command: the command line

def out_file(text: str) -> str:
    """An option's value as the path of a report whose suffix names a known format."""
    if not format_of(text):
        raise argparse.ArgumentTypeError(f"{text!r} does not end in one of {', '.join(FORMATS)}, the known formats")
    if not Path(text).parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder of {text!r} is not there: make it first")
    return text


def number(low, high, what, kind=float):
    """A reader of an option's value as a number between limits."""
    def read(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high or math.isinf(value):
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return value
    return read


def minimum(text: str) -> tuple:
    """pass@K=X or pass^K=X as (text, formula, K, X)."""
    found = re.fullmatch(r"pass([@^])([1-9][0-9]{0,8})=([0-9]*\.?[0-9]+)", text)
    if not found or float(found[3]) > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not like pass@1=0.8 or pass^3=0.7: K is from 1 up, the share from 0 to 1")
    return text, pass_at_k if found[1] == "@" else pass_power_k, int(found[2]), float(found[3])


def check_proof(parser, args) -> None:
    """Usage errors for options of the proof that do not go together, or go with none of the others."""
    for name in ("sign", "signers", "signer"):
        if getattr(args, name) == "":      # else nothing would be signed or checked, and nobody told
            parser.error(f"--{name} is empty: is a variable unset?")
    if args.signer and not args.signers:
        parser.error("--signer needs --signers: the file of ssh-keygen that lists who may sign")
    if args.signers and not args.verify:
        parser.error("--signers needs --verify: the report whose signature is checked")
    if args.sign and json_text not in map(format_of, args.out):
        parser.error("--sign needs --out with a name that ends in .json: the report that is signed")
    if args.verify is not None and not (args.verify and args.runs):
        parser.error("--verify needs the report and the logs or run records that it was made of")
    if args.redact and args.failures:
        parser.error("--failures shows the replies that --redact leaves out: leave one of them out")
    told = {name: getattr(args, name) for name in (*REMADE, "no_worse_than", "failures", "out", "sign")}
    given = [name for name, value in told.items() if value not in (None, False, [])]
    if args.verify and given:
        parser.error(f"--verify makes a report as it says itself: leave --{given[0].replace('_', '-')} out")


def options() -> harness.Parser:
    """What reads the command line."""
    parser = harness.Parser(description=__doc__, usage="python3 report.py LOG [OTHER_LOG] [OPTIONS]")
    add, price = parser.add_argument_group("what is shown").add_argument, number(0, math.inf, "a price from 0 up")
    add("runs", nargs="*", metavar="LOG", help="a log of bench.py or a run record of harness.py; without one the newest are listed")
    add("--failures", action="store_true", help="show the replies that failed, equal ones together")
    add("--case", metavar="ID", help="with --failures: of this case only, uncut")
    add("--out", type=out_file, action="append", default=[], metavar="FILE",
        help=f"write the report too, in the format of the suffix ({', '.join(FORMATS)}); repeatable")
    add("--excel", action="store_true", help="begin a .csv with the byte-order mark by which Excel knows UTF-8")
    add("--baseline", metavar="NAME", help="of several systems the one that the others are compared with (default: the first)")
    add("--plan", type=number(0.001, 0.5, "a half-width from 0.001 to 0.5"), metavar="H",
        help="say how many trials and cases bring the intervals of the pass rate to a half-width of H, and in what time")
    add("--color", choices=("auto", "always", "never"), default="auto", help="colour (default: auto)")
    add("--github", action="store_true", help="print each gate that is not met as an error of a GitHub workflow, too")
    add("--price-in", type=price, metavar="P", help="the price of a million tokens that the model reads")
    add("--price-out", type=price, metavar="P", help="the price of a million tokens that it writes")
    add = parser.add_argument_group("gates").add_argument
    add("--require", choices=FOLDS, help="gate: each case must pass so; also how a comparison folds a case")
    add("--min", type=minimum, action="append", default=[], metavar="pass@K=X",
        help="gate: pass@K (or pass^K) is at least X; repeatable")
    add("--no-worse-than", metavar="BASELINE", help="gate: the first system is not shown to be worse than this run or log")
    add("--margin", type=number(0, 1, "a share from 0 to 1"), metavar="M",
        help="with --no-worse-than: and is shown to be less than M worse")
    add("--allow-incomplete", type=number(0, 10 ** 9, "a whole number from 0 up", int), metavar="N",
        help="gate: at most N trials are incomplete (with any other gate: 0)")
    add = parser.add_argument_group("grading").add_argument
    add("--task", metavar="TASK", help="a task file or module (default: what the log holds)")
    add("--cases", metavar="FILE", help="the case file (default: what the log holds)")
    add("--regrade", action="store_true", help="grade logs with today's checks and expectations")
    add = parser.add_argument_group("proof").add_argument
    add("--redact", action="store_true", help="leave inputs, outputs and reasons out, of any format")
    add("--verify", metavar="REPORT.json", help="make this report again of its logs and tell what differs, or MATCH")
    add("--signers", metavar="ALLOWED", help="with --verify: and see that one of the signers in this file signed it")
    add("--signer", metavar="WHO", help="with --signers: that this one did")
    add("--sign", metavar="KEY", help="sign each .json of --out with this SSH key, as FILE.sig")
    return parser


def parse_args(argv):
    parser = options()
    args = parser.parse_args(argv)
    check_proof(parser, args)
    if args.case is not None and not args.failures:
        parser.error("--case needs --failures: it picks the case whose failures are shown")
    if args.no_worse_than == "" or "" in args.runs:
        parser.error("a run or log has an empty name: is a variable unset?")
    if args.margin is not None and args.no_worse_than is None:
        parser.error("--margin needs --no-worse-than: the baseline that it is measured from")
    if args.excel and csv_text not in map(format_of, args.out):
        parser.error("--excel needs --out with a name that ends in .csv")
    read = {os.path.realpath(path) for path in (*args.runs, args.cases, args.no_worse_than) if path}
    for path in args.out:
        if os.path.realpath(path) in read:
            parser.error(f"--out {path}: that file is read, give another name")
    return args


def annotations(verdicts) -> list:
    """A line for each gate that is not met, in the words by which a job of GitHub's is told of an error."""
    lines = []
    for verdict in verdicts:
        gate, told, *cases = (shortened(text, 1000).replace("%", "%25")
                              for text in (verdict["gate"], verdict["detail"], *verdict.get("cases", ())[:MOST_LISTED]))
        if not verdict["met"]:
            lines.append(f"::error title={gate.replace(':', '%3A').replace(',', '%2C')}::{'%0A'.join([told, *cases])}")
    return lines


def next_command(args) -> str:
    """The command that shows the failures of the same runs."""
    words = [*map(harness.as_word, args.runs), *harness.unusual(args), *(["--regrade"] if args.regrade else []), "--failures"]
    return "next: " + harness.in_shell(harness.PYTHON, harness.beside_caller("report.py"), *words)


def format_report(report, records, asked, args, term) -> list:
    """The lines of the whole report, or of the failures, with the gates and what to do next."""
    if args.failures:
        parts = [format_failures(system, record, asked, term, args.case) for system, record in zip(report["systems"], records)]
    else:
        glanced = [format_glance(report, term)] if len(report["systems"]) > 1 else []
        parts = glanced + [format_across(report, term) for _ in glanced]
        parts += [format_system(system, record, term, path)
                  for system, record, path in zip(report["systems"], records, args.firsts)]
        parts += [format_comparison(comparison, term) for comparison in report["comparisons"]]
        parts += [format_planning(system, term) for system in report["systems"] if args.plan]
    last = format_gates(report["gates"], term) + [f"wrote {printable(path)}" for path in args.out]
    if not args.failures and any(set(system["verdicts"]) - {"pass"} for system in report["systems"]):
        last.append(next_command(args))
    again = [] if args.failures else glanced[0] if glanced else headline(report["systems"][0], term)
    lines = [line for part in [*parts, last] if part for line in ("", *part)]
    if again and len(lines) > term.height:      # what scrolled away is what was asked for
        lines = [line for part in [*parts, again, last] if part for line in ("", *part)]
    return lines[1:]


def newest_logs(most=10) -> list:
    """A line for each of the newest logs in runs/: when it was last written, how far it is, what it measures, its path."""
    found = []
    for path, header, rows, planned in bench.logs_there(most):
        written = datetime.fromtimestamp(path.stat().st_mtime).strftime("%Y-%m-%d %H:%M")
        name = " ".join(as_text(word) for word in (header["system"].get("name") or "?", header.get("label")) if word)
        found.append((written, bench.how_far(rows, planned), printable(name), printable(harness.as_word(path))))
    widths = [max(map(bench.columns, column)) for column in list(zip(*found))[:3]]
    return ["  ".join([*(cell + " " * (width - bench.columns(cell)) for cell, width in zip(row, widths)), row[3]]) for row in found]


def check_there(paths) -> None:
    """RunError or UsageError where no log is named or one is not there; the newest are listed on stdout."""
    missing = [path for path in paths if not os.path.exists(path)]
    if paths and not missing:
        return
    lines = newest_logs()
    print(*lines, sep="\n", end="\n" * bool(lines))
    hint = "" if lines else "; there is none in runs/ yet: python3 bench.py writes one"
    if not paths:
        raise harness.UsageError(f"name the log to report{hint}")
    known = [str(path) for path in Path("runs").glob("*.jsonl")]
    raise RunError(f"{missing[0]}: No such file or directory{harness.nearest(missing[0], known)}")


def made_report(args) -> tuple:
    """(the report, with what it was made of and how, the records, {case id: case})."""
    baseline = [args.no_worse_than] if args.no_worse_than else []
    check_there(args.runs + baseline if args.runs else [])
    groups = bench.in_groups(args.runs)
    args.firsts = [paths[0] for paths in groups]
    if len(groups) > 1 and any(Path(path).suffix.lower() == ".svg" for path in args.out):
        raise harness.UsageError("argument --out: an .svg shows one system: give one run, or an .html for all of them")
    sources = [{"sha256": harness.file_sha256(path)} for path in args.runs + baseline]
    records, asked = read_records([*groups, baseline] if baseline else groups, args)
    if args.redact:
        records = list(map(harness.redacted, harness.check_records(records, args.firsts + baseline)))
    prices = None if args.price_in is args.price_out is None else (args.price_in or 0.0, args.price_out or 0.0)
    report = build_report(records, args.firsts + baseline, args.require or "all", prices, bool(args.no_worse_than), args.plan or PLANNED,
                          args.baseline)
    options = {**{name: getattr(args, name) for name in REMADE}, "min": [text for text, *_ in args.min],
               "no_worse_than": bool(args.no_worse_than), "baseline": args.baseline and report.get("reference")}
    report.update(gates=gates(report, records, args), harness=harness.identity(), sources=sources,
                  outputs_sha256=[harness.outputs_sha256(compact(record)) for record in records],
                  options={name: value for name, value in options.items() if value is not None and value is not False
                           and value != []})
    return report, records, asked


# Command: checking a report

def remade(claimed, args) -> tuple:
    """(a report or run record made anew of the runs given, findings in these); RunError where it cannot be made."""
    if "results" in claimed:
        task, case_set = log_sources(args.runs[0], args)
        return harness.replay(bench.to_recording(args.runs, case_set), task, case_set), []
    if claimed.get("report_version") != REPORT_VERSION:
        return None, harness.findings({"report_version": claimed.get("report_version")}, {"report_version": REPORT_VERSION})
    sources, said = claimed.get("sources"), io.StringIO()
    if not isinstance(sources, list) or len(sources) != len(args.runs):
        raise RunError(f"{args.verify} is not made of {plural(len(args.runs), 'file')}: give all of its own")
    args.runs = harness.as_listed(args.runs, sources)
    try:
        with contextlib.redirect_stderr(said):
            again = parse_args([*harness.remaking_words(claimed.get("options"), REMADE, args.runs), *harness.unusual(args)])
    except SystemExit:
        raise RunError(f"{args.verify}: options: {said.getvalue().strip()}") from None
    records = [(path, harness.read_json(path)) for path in args.runs if not bench.is_log(path)]
    found = [(kind, f"{path}: {text}") for path, record in records for kind, text in harness.record_findings(
        record, *harness.load_plan(args.task or "triage_task", args.cases))]
    if {"MALFORMED", "MISSING_TRIAL"} & {kind for kind, _ in found}:
        return None, found
    report, records, _ = made_report(again)
    return report, found + [(kind, f"{path}: {text}") for path, record in zip(again.firsts + args.runs[-1:], records) for kind, text in (
        *(("MALFORMED", fault) for fault in getattr(record, "faults", ())), *harness.plan_findings(record))]


def report_runs(argv=None) -> int:
    """Read, count, write and print; 1 when a gate is not met."""
    args = parse_args(argv)
    if args.verify:
        check_there(args.runs)
        return harness.verify(args.verify, lambda claimed: remade(claimed, args), args.signers, args.signer)
    report, records, asked = made_report(args)
    if args.failures:
        check_case(args, report, asked)
    signed = [path for path in args.out if args.sign and format_of(path) is json_text]
    for path in signed:
        Path(f"{path}.sig").unlink(missing_ok=True)     # that of an earlier report
    harness.write_texts({path: format_of(path)(report, records, args) for path in args.out})
    for path in signed:
        harness.sign(args.sign, path)
    lines = format_report(report, records, asked, args, bench.terminal(sys.stdout, args.color))
    if args.github:     # which obeys any line that begins like a command, until it hears the word that nobody can guess
        word = os.urandom(16).hex()
        lines = ["::stop-commands::" + word, *lines, f"::{word}::", *annotations(report["gates"])]
    print(*lines, sep="\n")
    return 0 if all(verdict["met"] for verdict in report["gates"]) else 1


def main(argv=None) -> int:
    """The command line; returns the exit status."""
    return harness.run_command(report_runs, argv)


def script():
    """The program as a command, and the start of a zip archive."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, harness.terminate)
    sys.exit(main())


if __name__ == "__main__":
    script()
