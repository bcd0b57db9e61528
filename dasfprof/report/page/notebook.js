// In a notebook, beside the frame of a report: makes frames as tall as their pages, and gives pages
// that came without their script and style those of another output (see `notebook.py`).

(() => {
  "use strict";
  const TALLEST = 20000; // pixels
  const SHARED = /(<style>|<script type="text\/plain" id="script">)([^<]*)/g;
  /** @returns {NodeListOf<HTMLIFrameElement>} */
  const frames = () => document.querySelectorAll("iframe.dasfprof-report");
  /** @type {any} Of the notebook, whose outputs share it. */
  const shared = window;

  if (!shared.dasfprofParts) {
    /** Style and script, by their checksum: outputs that are not in view may be out of the document. */
    shared.dasfprofParts = new Map();
    window.addEventListener("message", (event) => {
      const height = event.data?.dasfprofHeight;
      if (!Number.isFinite(height) || height <= 0) return;
      for (const frame of frames()) {
        if (frame.contentWindow === event.source) frame.style.height = `${Math.min(height, TALLEST)}px`;
      }
    });
  }
  const parts = shared.dasfprofParts;
  // JupyterLab's theme need not be that of the system, which frames follow unless they are told.
  const light = document.body.dataset.jpThemeLight;
  for (const { dataset, srcdoc } of frames()) {
    if (!dataset.page) parts.set(dataset.parts, Array.from(srcdoc.matchAll(SHARED), (found) => found[2]));
  }
  for (const frame of frames()) {
    if (light) frame.style.colorScheme = light === "true" ? "light" : "dark";
    const rest = frame.dataset.page && parts.get(frame.dataset.parts)?.slice();
    if (!rest) continue;
    // Chromium does not paint a frame whose page is replaced while it loads.
    const whole = /** @type {HTMLIFrameElement} */ (frame.cloneNode());
    whole.srcdoc = frame.dataset.page.replace(SHARED, (_, begin) => begin + rest.shift());
    delete whole.dataset.page;
    frame.replaceWith(whole);
  }
})();
