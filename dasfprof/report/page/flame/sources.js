// Lines of a file with the seconds that were spent at them, beside the source that was recorded.

import { formatSeconds, formatShare, visible } from "../format.js";
import { html } from "../vendor/lit-html.js";

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
 * and what `spentParts` takes of each.
 */
export function lineTable(sources, file, spent) {
  const source = spent.map(({ line }) => sources.find(file, line)).find((found) => found) ?? null;
  return html`<div>${source ? "" : html`<p class="absent">${NO_SOURCE}</p>`}${sourceTable(source, spent)}</div>`;
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
  return html`<div class="lines-box" tabindex="0">
    <table class="lines" aria-label="Lines"><tbody>${rows}</tbody></table>
  </div>`;
}

const NO_SOURCE =
  "Its source is not recorded: that is done of the functions that tasks call, where the file that " +
  "they were made of is on the worker, unchanged.";

function lineRow(line, text, spent, most) {
  const seconds = spent ? formatSeconds(spent.seconds) : "";
  const code = text === null ? "" : visible(text.replaceAll("\t", "    "));
  return html`<tr class=${spent ? "" : "unseen-line"}>
    <td class="number">${line || ""}</td>
    <td class="number">${seconds}</td>
    <td class="spent">${spent ? spentBar(spent, spent.seconds / most) : ""}</td>
    <td><code>${code}</code></td>
  </tr>`;
}

/** Lines of any files, the longest first, in a list. */
export function lineList(spent) {
  const most = Math.max(...spent.map((one) => one.seconds), 1e-9);
  const item = (one) => html`<li>
    <span class="seconds">${formatSeconds(one.seconds)}</span>
    <span class="spent">${spentBar(one, one.seconds / most)}</span>
    <span class="place" title=${visible(one.file)}>${placeOfLine(one)}</span>
  </li>`;
  return html`<ol class="line-list">${spent.map(item)}</ol>`;
}

function placeOfLine({ file, line, name }) {
  const base = file.split(/[\\/]/).at(-1);
  return visible(line ? `${base}:${line} ${name}` : name);
}

/** A bar of the computing and the other seconds, as wide as a share. */
function spentBar(spent, share) {
  const style = `width: ${Math.max(share * 100, 1)}%`;
  return html`<div class="spent-bar" title=${spentWords(spent)} .style=${style}>${spentParts(spent)}</div>`;
}

/** The share of the time by which what it was spent with may be off, to be told apart. */
const TELLING = 0.1;

/** The parts of an element's width that do not stand for computing: striped, hatched or dotted. */
export function spentParts({ seconds, computing, core, lock, uncertain }) {
  const ready = (core || 0) + (lock || 0);
  const parts = [["waits", computing + ready, seconds - computing - ready]];
  if (!Number.isFinite(computing)) parts.splice(0, 1, ["untold", 0, seconds]);
  else if (uncertain > TELLING * seconds) parts.push(["untold", 0, computing + ready]);
  else parts.push(["ready", computing, ready]);
  const seen = parts.filter(([, , length]) => length > 0.005 * seconds).reverse();
  return seen.map(([kind, before, length]) => {
    const style = `left: ${(before / seconds) * 100}%; width: ${(length / seconds) * 100}%`;
    return html`<i class=${kind} .style=${style}></i>`;
  });
}

/** What seconds were spent with, as far as it is known. */
export function spentWords({ seconds, computing, core, lock, uncertain }) {
  if (!Number.isFinite(computing)) return "computing or waiting: unknown";
  const active = [
    [computing, "computing"],
    [core || 0, "waiting for a core"],
    [lock || 0, "waiting for the interpreter's lock"],
  ];
  const ran = active.reduce((sum, [part]) => sum + part, 0);
  const isSome = ([part]) => seconds > 0 && part / seconds >= 0.005;
  const either = active.filter(isSome).map(([, words]) => words);
  const parts = uncertain > TELLING * seconds ? [[ran, either.join(" or ")]] : active;
  const told = [...parts, [Math.max(seconds - ran, 0), "waiting"]].filter(isSome);
  return told.map(([part, words]) => `${formatShare(part / seconds)} ${words}`).join(", ");
}
