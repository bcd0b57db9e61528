// What the diagnosis found: each finding a link to the place in the timeline that it speaks of.

import { rowsOf } from "./data.js";
import { byId, make } from "./dom.js";
import { counted, formatCell, formatSeconds, shortened, visible } from "./format.js";
import { functionButton } from "./functions/drawer.js";

/** How severe a finding is: a shape and a word, as not everyone tells the colours apart. */
const SEVERITIES = {
  high: { shape: "▲", about: "at least 20 % of the run could be saved, or results are missing" },
  medium: { shape: "◆", about: "at least 5 % of the run could be saved" },
  low: { shape: "●", about: "less could be saved, or another finding explains it" },
  info: { shape: "○", about: "good to know" },
};
const GRAVE = ["high", "medium"];

export class Findings {
  places; follow; about;

  /**
   * `places` has all places of each row of `TraceAnalyser.diagnose`, null: its own are all.
   * `follow(at)` is called with the place of the row that a link is of, `about(name)` with a function
   * whose name is followed.
   */
  constructor({ table, places }, { wall, tasks }, root, { follow, about }) {
    Object.assign(this, { places, follow, about });
    this.rows = rowsOf(table);
    /** The place of the finding that is looked at; null: none is. */
    this.marked = null;
    this.items = this.rows.map((row, at) => this.item(row, at, wall));
    const seen = this.items.filter((_, at) => GRAVE.includes(this.rows[at].Severity));
    const others = this.items.filter((item) => !seen.includes(item));
    root.replaceChildren(make("p", { class: "verdict" }, verdict(this.rows, seen.length, tasks)));
    if (seen.length) root.append(make("ol", { class: "findings" }, ...seen));
    if (!others.length) return;
    const title = `${counted(others.length, "less severe finding")}`;
    const list = make("ol", { class: "findings", start: String(seen.length + 1) }, ...others);
    this.rest = make("details", { class: "lesser" }, make("summary", {}, title), list);
    root.append(this.rest);
  }

  item(row, at, wall) {
    const badge = severity(row);
    const href = `#finding=${at + 1}`;
    const link = make("a", { href }, visible(row.Finding));
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      // In a notebook's frame a link of a fragment alone would lead to the notebook.
      event.preventDefault();
      // The address does not change, and nobody is told, if it is there already.
      if (location.hash === href) this.follow(at);
      else location.hash = href;
    });
    return make(
      "li",
      { id: `finding-${at + 1}`, class: row.Cause === null ? "" : "symptom" },
      badge,
      stake(row["Seconds at stake (s)"], wall),
      make(
        "div",
        {},
        make("p", { class: "sentence" }, link, place(row, this.places[at], this.about)),
        make(
          "details",
          { class: "evidence" },
          make("summary", { class: "suggestion", title: "What it rests on" }, visible(row.Suggestion)),
          make("p", {}, visible(row.Evidence)),
          ...explanation(row),
        ),
      ),
    );
  }

  /** Marks the finding that is looked at; null marks none. */
  mark(at) {
    this.marked = at;
    for (const [number, item] of this.items.entries()) {
      item.toggleAttribute("aria-current", number === at);
      if (number === at && this.rest?.contains(item)) this.rest.open = true;
    }
    const told = byId("followed");
    told.hidden = at === null;
    if (at === null) return;
    const back = make(
      "button",
      { type: "button", onclick: () => this.items[at].querySelector("a").focus() },
      "Back to the findings",
    );
    told.replaceChildren(severity(this.rows[at]), shortened(this.rows[at].Finding, 400), back);
  }
}

/** What a finding speaks of: what its task runs have in common, and times (null: the whole run). */
export function placesOf(row, all) {
  if (all) {
    const { spans, ...common } = all;
    return { common, spans: spans.length ? spans : null };
  }
  const { Function: name, Worker: worker, "Start (s)": start, "Stop (s)": stop } = row;
  return { common: { function: name, worker, state: null }, spans: start === null ? null : [[start, stop ?? start]] };
}

export function severity({ Severity: name }) {
  const { shape, about } = SEVERITIES[name] ?? SEVERITIES.info;
  const mark = make("i", { "aria-hidden": "true" }, shape);
  return make("span", { class: `severity ${name}`, title: about }, mark, visible(name));
}

function verdict(rows, grave, tasks) {
  if (!rows.length && !tasks) return "No task runs: there is nothing to judge.";
  if (!rows.length) return "No problem found: none of the known faults is in this run.";
  if (!grave) return "No severe problems found.";
  return (
    "Most severe first. Each one leads to its place in the timeline. Savings overlap, so they do not add up. " +
    "Shares are of first to last task."
  );
}

/** A link to the documentation's page of a finding, if the documentation has an address. */
function explanation({ Page: href }) {
  if (!href) return [];
  return [make("p", {}, make("a", { href, target: "_blank", rel: "noopener" }, "What it means"))];
}

/** Of how many seconds of the run a finding speaks. */
function stake(seconds, wall) {
  if (seconds === null) return make("span", { class: "stake" });
  const bar = make("div", { class: "meter" }, make("div"));
  const share = wall > 0 ? seconds / wall : 0;
  bar.firstChild.style.width = `${Math.min(share, 1) * 100}%`;
  const whole = share > 1 ? "the client's time" : `${formatSeconds(wall)} of run time`;
  const title = `of ${whole} might be saved`;
  return make("span", { class: "stake", title }, formatSeconds(seconds), bar);
}

/** Where a finding is: its function, worker and time, as far as it speaks of any. */
function place({ Function: name, Worker: worker, "Start (s)": start, "Stop (s)": stop }, all, about) {
  const others = (all?.spans.length ?? 0) - 1;
  const more = others > 0 ? ` and ${counted(others, "more time")}` : "";
  const parts = [
    ...(worker === null || (all && all.worker === null) ? [] : [shortened(worker, 40)]),
    ...(start === null || stop === null ? [] : [`${formatCell(start, 2)} to ${formatCell(stop, 2)} s${more}`]),
  ];
  const button = name === null ? [] : [functionButton(name, about, { disabled: true, "data-waits": true })];
  const told = name !== null && parts.length ? ["", ...parts] : parts;
  return button.length || told.length ? make("small", {}, " ", ...button, told.join(" · ")) : "";
}
