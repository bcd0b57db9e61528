// Which task runs are lit: those that were searched for, of one function, worker, step and state at
// the end.

import { byId, make } from "../dom.js";
import { shortened } from "../format.js";
import { stateText } from "../words.js";
import { codeOf } from "./colours.js";

/** More choices than this nobody scrolls through; links and the search reach the others. */
const MAX_CHOICES = 500;
export const FILTERS = ["step", "line", "function", "worker", "state"];

export class Filters {
  /** `changed()` is called when the person chooses. */
  constructor(tasks, changed) {
    this.tasks = tasks;
    /** A flag for each row that was searched for; null: nothing was. */
    this.found = null;
    /** The plan, of which boxes may be chosen: it then has `has(row)`. */
    this.plan = null;
    this.boxes = Object.fromEntries(FILTERS.map((name) => [name, byId(`only-${name}`)]));
    for (const name of FILTERS) {
      const places = this.places(name);
      const box = this.boxes[name];
      box.closest("label").hidden = places.length < 2;
      const shown = places.slice(0, MAX_CHOICES);
      box.append(...shown.map((place) => this.option(name, place)));
      box.addEventListener("change", changed);
    }
  }

  names(name) {
    const { functions, workers, steps, lines, states } = this.tasks.facts;
    return { function: functions, worker: workers, step: steps, line: lines, state: states }[name];
  }

  /** The places in the list of names that tasks have, in the order of the choices. */
  places(name) {
    return name === "function" ? this.tasks.functionsByTime : [...this.names(name).keys()];
  }

  option(name, place) {
    const text = this.names(name)[place];
    return make("option", { value: String(place) }, name === "state" ? stateText(text) : shortened(text, 60));
  }

  /** Lights those of one function, worker, step or line alone, null: all; true if there is such a one. */
  choose(name, wanted) {
    const box = this.boxes[name];
    const place = this.names(name).indexOf(wanted);
    if (place >= 0 && !box.querySelector(`option[value="${place}"]`)) {
      box.append(this.option(name, place));
    }
    box.value = place < 0 ? "" : String(place);
    return place >= 0;
  }

  /** The name that a filter lets through; null: all. */
  chosen(name) {
    const { value } = this.boxes[name];
    return value === "" ? null : this.names(name)[Number(value)];
  }

  get any() {
    return this.found !== null || this.plan?.has || FILTERS.some((name) => this.boxes[name].value !== "");
  }

  /** A flag for each row; null if all are lit. */
  lit() {
    if (!this.any) return null;
    const { tasks, found } = this;
    const { count } = tasks;
    const lit = found ? found.slice() : new Uint8Array(count).fill(1);
    for (const name of FILTERS) {
      if (this.boxes[name].value === "") continue;
      const wanted = Number(this.boxes[name].value);
      const code = codeOf(tasks, name);
      for (let row = 0; row < count; row += 1) if (lit[row] && code(row) !== wanted) lit[row] = 0;
    }
    const has = this.plan?.has;
    if (has) for (let row = 0; row < count; row += 1) if (lit[row] && !has(row)) lit[row] = 0;
    return lit;
  }
}
