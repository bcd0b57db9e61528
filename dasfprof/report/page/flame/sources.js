// Lines of a file with the seconds that were spent at them, beside the source that was recorded.

import { make } from "../dom.js";
import { formatSeconds, formatShare, visible } from "../format.js";

export class Sources {
  /** `code`: place, source, file and first line of functions, in lists. */
  constructor(code) {
    this.functions = Object.values(code)
      .flat()
      .map(([, source, file, first]) => ({ file, first, lines: source.replace(/\n$/, "").split("\n"), source }))
      .filter(({ source }) => source !== "");
  }

  /** The source of the function that a line is of; null: none was recorded, or several differ. */
  find(file, line) {
    const found = this.functions.filter(
      (one) => one.file === file && line >= one.first && line < one.first + one.lines.length,
    );
    // The innermost of those that one is defined in.
    const first = Math.max(...found.map((one) => one.first));
    const inner = found.filter((one) => one.first === first);
    return new Set(inner.map((one) => one.source)).size === 1 ? inner[0] : null;
  }
}

/** The text that stands in the place of the lines beyond the hundredth, which are not recorded. */
const OMITTED_LINES = /^\.\.\. and \d+ lines$/;

/**
 * A table of the lines of one file, with their source where it is known; `spent` has `line`
 * and what `dressSpent` takes of each.
 */
export function lineTable(sources, file, spent) {
  const source = spent.map(({ line }) => sources.find(file, line)).find((found) => found) ?? null;
  const about = source ? [] : [make("p", { class: "absent" }, NO_SOURCE)];
  return make("div", {}, ...about, sourceTable(source, spent));
}

/** The same of a source that is known, or null. */
export function sourceTable(source, spent) {
  const byLine = new Map(spent.map((one) => [one.line, one]));
  const most = Math.max(...spent.map((one) => one.seconds), 1e-9);
  const rows = [];
  for (const [at, text] of (source?.lines ?? []).entries()) {
    const line = source.first + at;
    if (OMITTED_LINES.test(text)) rows.push(lineRow(null, text, null, most));
    else rows.push(lineRow(line, text, byLine.get(line), most));
    byLine.delete(line);
  }
  for (const one of byLine.values()) rows.push(lineRow(one.line, null, one, most));
  const table = make("table", { class: "lines", "aria-label": "Lines" }, make("tbody", {}, ...rows));
  return make("div", { class: "lines-box", tabindex: "0" }, table);
}

const NO_SOURCE =
  "Its source is not recorded: that is done of the functions that tasks call, where the file that " +
  "they were made of is on the worker, unchanged.";

function lineRow(line, text, spent, most) {
  const seconds = spent ? formatSeconds(spent.seconds) : "";
  const code = make("code", {}, text === null ? "" : visible(text.replaceAll("\t", "    ")));
  return make(
    "tr",
    { class: spent ? "" : "unseen-line" },
    make("td", { class: "number" }, line ? String(line) : ""),
    make("td", { class: "number" }, seconds),
    make("td", { class: "spent" }, ...(spent ? [spentBar(spent, spent.seconds / most)] : [])),
    make("td", {}, code),
  );
}

/** Lines of any files, the longest first, in a list. */
export function lineList(spent) {
  const most = Math.max(...spent.map((one) => one.seconds), 1e-9);
  const items = spent.map((one) =>
    make(
      "li",
      {},
      make("span", { class: "seconds" }, formatSeconds(one.seconds)),
      make("span", { class: "spent" }, spentBar(one, one.seconds / most)),
      make("span", { class: "place", title: visible(one.file) }, placeOfLine(one)),
    ),
  );
  return make("ol", { class: "line-list" }, ...items);
}

/** File, line and function of a line, in few words. */
export function placeOfLine({ file, line, name }) {
  const base = file.split(/[\\/]/).at(-1);
  return visible(line ? `${base}:${line} ${name}` : name);
}

/** A bar of the computing and the other seconds, as wide as a share. */
function spentBar(spent, share) {
  const bar = make("div", { class: "spent-bar", title: spentWords(spent) });
  bar.style.width = `${Math.max(share * 100, 1)}%`;
  dressSpent(bar, spent);
  return bar;
}

/** The share of the time by which what it was spent with may be off, to be told apart. */
const TELLING = 0.1;

/** Marks what an element's width stands for: what is not computing is striped, hatched or dotted. */
export function dressSpent(element, { seconds, computing, core, lock, uncertain }) {
  const ready = (core || 0) + (lock || 0);
  const parts = [["waits", computing + ready, seconds - computing - ready]];
  if (!Number.isFinite(computing)) parts.splice(0, 1, ["untold", 0, seconds]);
  else if (uncertain > TELLING * seconds) parts.push(["untold", 0, computing + ready]);
  else parts.push(["ready", computing, ready]);
  for (const [kind, before, length] of parts) {
    if (!(length > 0.005 * seconds)) continue;
    const part = make("i", { class: kind });
    part.style.left = `${(before / seconds) * 100}%`;
    part.style.width = `${(length / seconds) * 100}%`;
    element.prepend(part);
  }
}

/** What seconds were spent with, as far as it is known. */
export function spentWords({ seconds, computing, core, lock, uncertain }) {
  if (!Number.isFinite(computing)) return "computing or waiting: unknown";
  const active = [
    [computing, "computing"],
    [core || 0, "waiting for a core"],
    [lock || 0, "waiting for the GIL"],
  ];
  const ran = active.reduce((sum, [part]) => sum + part, 0);
  const isSome = ([part]) => seconds > 0 && part / seconds >= 0.005;
  const either = active.filter(isSome).map(([, words]) => words);
  const parts = uncertain > TELLING * seconds ? [[ran, either.join(" or ")]] : active;
  const told = [...parts, [Math.max(seconds - ran, 0), "waiting"]].filter(isSome);
  return told.map(([part, words]) => `${formatShare(part / seconds)} ${words}`).join(", ");
}
