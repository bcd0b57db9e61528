// The findings. Each is a link to its place in the timeline.

import { rowsOf } from "./data.js";
import { byId, make, meter } from "./dom.js";
import { counted, formatCell, formatSeconds, shortened, visible } from "./format.js";
import { functionButton } from "./functions/drawer.js";

/** Severities, with shapes for people who cannot distinguish the colours. */
const SEVERITIES = {
  high: { shape: "▲", about: "at least 20 % of the run could be saved, or results are missing" },
  medium: { shape: "◆", about: "at least 5 % of the run could be saved" },
  low: { shape: "●", about: "less could be saved, or another finding explains it" },
  info: { shape: "○", about: "for information" },
};
const SEVERE = ["high", "medium"];
const PERCENTAGES = "Percentages in findings refer to the time from the first to the last task.";

export class Findings {
  places; follow; about;

  /**
   * `places` has the places of each row of `TraceAnalyser.diagnose`, or null if the row itself has
   * its only place. A click on a finding calls `follow(index)`, and one on a function `about(name)`.
   */
  constructor({ table, places }, { wall, tasks }, root, { follow, about }) {
    Object.assign(this, { places, follow, about });
    this.rows = rowsOf(table);
    /** The index of the finding that is shown in the timeline, or null. */
    this.marked = null;
    this.items = this.rows.map((row, at) => this.item(row, at, wall));
    const severe = this.items.filter((_, at) => SEVERE.includes(this.rows[at].Severity));
    const others = this.items.filter((item) => !severe.includes(item));
    root.replaceChildren(make("p", { class: "verdict", title: PERCENTAGES }, verdict(this.rows, severe.length, tasks)));
    if (severe.length) root.append(make("ol", { class: "findings" }, ...severe));
    if (!others.length) return;
    const title = counted(others.length, "less severe finding");
    const list = make("ol", { class: "findings", start: String(severe.length + 1) }, ...others);
    this.lesser = make("details", { class: "lesser" }, make("summary", {}, title), list);
    root.append(this.lesser);
  }

  item(row, at, wall) {
    const badge = severity(row);
    const href = `#finding=${at + 1}`;
    const link = make("a", { href }, visible(row.Finding));
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      // In a notebook's frame, a link that is only a fragment would lead to the notebook.
      event.preventDefault();
      // There is no event if the address already has this fragment.
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
          make("summary", { class: "suggestion", title: "Evidence" }, visible(row.Suggestion)),
          make("p", {}, visible(row.Evidence)),
          ...explanation(row),
        ),
      ),
    );
  }

  /** Marks the finding that is shown in the timeline, or none for null. */
  mark(at) {
    this.marked = at;
    for (const [number, item] of this.items.entries()) {
      item.toggleAttribute("aria-current", number === at);
      if (number === at && this.lesser?.contains(item)) this.lesser.open = true;
    }
    const followed = byId("followed");
    followed.hidden = at === null;
    if (at === null) return;
    const back = make(
      "button",
      { type: "button", onclick: () => this.items[at].querySelector("a").focus() },
      "Back to the findings",
    );
    followed.replaceChildren(severity(this.rows[at]), shortened(this.rows[at].Finding, 400), back);
  }
}

/** Returns what the task runs of a finding have in common, and its times, null for the full run. */
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

function verdict(rows, severe, tasks) {
  if (!rows.length && !tasks) return "No task ran, so there is nothing to diagnose.";
  if (!rows.length) return "No known problem was found.";
  if (!severe) return "No severe problems found.";
  return "Most severe first. Click a finding to see it in the timeline. Savings may overlap.";
}

/** Returns a link to the finding's page in the documentation, if the documentation has an address. */
function explanation({ Page: href }) {
  if (!href) return [];
  return [make("p", {}, make("a", { href, target: "_blank", rel: "noopener" }, "Explanation"))];
}

/** Returns the potential savings of a finding, with a bar for their fraction of the run time. */
function stake(seconds, wall) {
  if (seconds === null) return make("span", { class: "stake" });
  const share = wall > 0 ? seconds / wall : 0;
  const total = share > 1 ? "the client's time" : `${formatSeconds(wall)} of run time`;
  const title = `Potential savings, of ${total}`;
  return make("span", { class: "stake", title }, formatSeconds(seconds), meter(share));
}

/** Returns the function, worker and time of a finding, if it has any. */
function place({ Function: name, Worker: worker, "Start (s)": start, "Stop (s)": stop }, all, about) {
  const others = (all?.spans.length ?? 0) - 1;
  const more = others > 0 ? ` and ${counted(others, "more time")}` : "";
  const parts = [
    ...(worker === null || (all && all.worker === null) ? [] : [shortened(worker, 40)]),
    ...(start === null || stop === null ? [] : [`${formatCell(start, 2)} to ${formatCell(stop, 2)} s${more}`]),
  ];
  const button = name === null ? [] : [functionButton(name, about, { disabled: true, "data-waits": true })];
  if (!button.length && !parts.length) return "";
  return make("small", {}, " ", ...button, button.length && parts.length ? " · " : "", parts.join(" · "));
}
