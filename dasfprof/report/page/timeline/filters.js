// The task runs that are highlighted: matches of the search and of filters.

import { byId, make } from "../dom.js";
import { shortened } from "../format.js";
import { stateText } from "../words.js";
import { codeOf } from "./colours.js";

/** Maximum number of names in a list. Links and the search reach the others. */
const MAX_CHOICES = 500;
export const FILTERS = ["step", "line", "function", "worker", "state"];

export class Filters {
  /** A choice of the user calls `changed()`. */
  constructor(tasks, changed) {
    this.tasks = tasks;
    /** A flag for each row, 1 if it matches the search, or null without a search. */
    this.matches = null;
    /** The plan. If boxes are chosen, it has `has(row)`. */
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
    return this.tasks.facts[`${name}s`];
  }

  /** Returns indices in the list of names, in the order of the choices. */
  places(name) {
    return name === "function" ? this.tasks.functionsByTime : [...this.names(name).keys()];
  }

  option(name, place) {
    const text = this.names(name)[place];
    return make("option", { value: String(place) }, name === "state" ? stateText(text) : shortened(text, 60));
  }

  /** Sets a filter to a name, or clears it for null or an unknown name. */
  choose(name, wanted) {
    const box = this.boxes[name];
    const place = this.names(name).indexOf(wanted);
    if (place >= 0 && !box.querySelector(`option[value="${place}"]`)) {
      box.append(this.option(name, place));
    }
    box.value = place < 0 ? "" : String(place);
  }

  /** Returns the chosen name of a filter, or null. */
  chosen(name) {
    const { value } = this.boxes[name];
    return value === "" ? null : this.names(name)[Number(value)];
  }

  /** Returns a flag for each row, or null if all are highlighted. */
  lit() {
    const { tasks, matches } = this;
    if (!matches && !this.plan?.has && FILTERS.every((name) => this.boxes[name].value === "")) return null;
    const { count } = tasks;
    const lit = matches ? matches.slice() : new Uint8Array(count).fill(1);
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
