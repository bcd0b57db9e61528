// Lets Node.js load the modules of the pages, which have no package.json and use a few functions of
// a browser when they are loaded.

import { register } from "node:module";

const hook = `export function load(url, context, next) {
  return next(url, url.includes("/report/page/") ? { ...context, format: "module" } : context);
}`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);

globalThis.matchMedia = () => ({ matches: false, addEventListener() {} });
Map.groupBy ??= (items, keyOf) => {
  const groups = new Map();
  for (const item of items) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), item]);
  return groups;
};
