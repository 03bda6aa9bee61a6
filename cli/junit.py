"""Checks as JUnit XML, which CI servers read: a test case each, failures and errors with their reasons."""

from __future__ import annotations

from xml.etree import ElementTree as Xml

from .judging import Judged
from .text import clean


def junit_xml(file: str, results: list[Judged]) -> str:
    """One suite named after the budgets file; `file` and `line` of a case are those of its check."""
    failed = sum(1 for each in results if not each.passed and not each.error)
    broken = sum(1 for each in results if each.error)
    counts = {"tests": str(len(results)), "failures": str(failed), "errors": str(broken)}
    root = Xml.Element("testsuites", {"name": "infercost check", **counts})
    suite = Xml.SubElement(root, "testsuite", {"name": clean(file), **counts, "skipped": "0"})
    for each in results:
        check = each.check
        where = {"classname": clean(file), "name": check.name, "file": clean(file), "line": str(check.line)}
        case = Xml.SubElement(suite, "testcase", where)
        if not each.passed:
            kind = "error" if each.error else "failure"
            problem = Xml.SubElement(case, kind, {"message": _line(each.why), "type": check.rule})
            problem.text = clean("\n".join(filter(None, (each.why, check.note, check.command_line))))
    Xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"


def _line(text: str) -> str:
    return " ".join(clean(text).split())
