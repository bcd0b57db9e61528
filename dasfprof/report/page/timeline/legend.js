// A list of what colours are of: a click on an entry isolates it, Shift and click adds one or takes it away.

import { byId, make } from "../dom.js";
import { visible } from "../format.js";
import { gapLegend, legendOf, pathLegend, rowsOfEntries } from "./colours.js";

class Legend {
  root; changed;

  /** `changed()` is called when others are chosen. */
  constructor(root, changed) {
    Object.assign(this, { root, changed });
    /** The names of the entries that are chosen; none: all are shown alike. */
    this.chosen = new Set();
    root.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.chosen.size) this.choose([]);
    });
  }

  /** Lists entries: a `name`, a `swatch`, and where they apply `about`, `title`, `text`; or a heading alone. */
  show(entries) {
    this.buttons = new Map();
    this.chosen.clear();
    this.root.replaceChildren(...entries.map((entry) => make("li", {}, this.entry(entry))));
  }

  entry(entry) {
    if (typeof entry === "string") return entry;
    const { name, title = null } = entry;
    const onclick = (event) => this.onClick(name, event.shiftKey);
    const about = { type: "button", "aria-pressed": "false", title, onclick };
    const button = make("button", about, ...partsOf(entry));
    this.buttons.set(name, button);
    return button;
  }

  onClick(name, adds) {
    const others = [...this.chosen].filter((one) => one !== name);
    const kept = adds ? others : [];
    const takesAway = this.chosen.has(name) && (adds || !others.length);
    this.choose(takesAway ? kept : [...kept, name]);
  }

  /** Chooses the entries of these names, as far as they are listed. */
  choose(names) {
    const before = [...this.chosen].sort().join("\n");
    this.chosen = new Set(names.filter((name) => this.buttons.has(name)));
    for (const [name, button] of this.buttons) button.setAttribute("aria-pressed", String(this.chosen.has(name)));
    if ([...this.chosen].sort().join("\n") !== before) this.changed();
  }
}

function partsOf({ name, swatch: colour, about = "", text = visible(name) }) {
  return [colour, text, make("small", {}, about && ` ${about}`)];
}

/** The entries of a legend that cannot be chosen. */
export function plainLegend(entries) {
  return entries.map((entry) =>
    typeof entry === "string" ? make("li", {}, entry) : make("li", { title: entry.title ?? null }, ...partsOf(entry)),
  );
}

/** The legends of the timeline: colours of bars, classes of gaps, kinds of the critical path. */
export class Legends {
  constructor(page, classes) {
    const { tasks, timeline, gaps } = page;
    this.page = page;
    /** Whether a row is of the entries that are chosen; null: none are. */
    this.has = null;
    this.bars = new Legend(byId("legend"), () => this.isolate());
    this.gaps = new Legend(byId("gap-legend"), () => {
      const { chosen } = this.gaps;
      gaps.only = chosen.size ? new Set([...chosen].map((name) => gaps.names.indexOf(name))) : null;
      timeline.draw();
      page.countRows();
      page.address?.note();
    });
    this.path = new Legend(byId("path-legend"), () => {
      tasks.path.only = this.path.chosen.size ? this.path.chosen : null;
      timeline.draw();
      page.countRows();
      page.address?.note();
    });
    this.gaps.show(gapLegend(gaps, classes));
    this.path.show(pathLegend(tasks.path));
  }

  /** Shows what task runs are coloured by. */
  colour(by) {
    this.by = by;
    this.entries = legendOf(this.page.tasks, by);
    this.bars.show(this.entries);
    if (this.has) this.isolate();
  }

  isolate() {
    const entries = this.entries.filter(({ name }) => this.bars.chosen.has(name));
    this.has = entries.length ? rowsOfEntries(this.page.tasks, this.by, entries) : null;
    this.page.light();
  }

  /** Whether an entry of any is chosen. */
  get any() {
    return Object.values(this.named).some(({ chosen }) => chosen.size > 0);
  }

  clear() {
    for (const legend of [this.bars, this.gaps, this.path]) legend.choose([]);
  }

  /** Puts into a link what is not as at first: `colour`, and the names that are chosen: `shown`, `class`, `kind`. */
  write(link) {
    if (this.by !== "function") link.set("colour", this.by);
    for (const [name, legend] of Object.entries(this.named)) for (const one of legend.chosen) link.append(name, one);
  }

  /** Chooses what a link has, and nothing else. */
  read(link) {
    const by = link.get("colour");
    if ([...byId("colour").options].some(({ value }) => value === by) && by !== this.by) this.page.colour(by);
    for (const [name, legend] of Object.entries(this.named)) legend.choose(link.getAll(name));
  }

  get named() {
    return { shown: this.bars, class: this.gaps, kind: this.path };
  }
}
