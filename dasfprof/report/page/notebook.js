// In a notebook, beside the frame of a report: makes frames as tall as their pages, and gives them
// the notebook's theme (see `notebook.py`).

(() => {
  "use strict";
  const TALLEST = 20000; // pixels
  /** @returns {NodeListOf<HTMLIFrameElement>} */
  const frames = () => document.querySelectorAll("iframe.dasfprof-report");
  /** @type {any} Of the notebook, whose outputs share it. */
  const shared = window;

  if (!shared.dasfprofFrames) {
    shared.dasfprofFrames = true;
    window.addEventListener("message", (event) => {
      const height = event.data?.dasfprofHeight;
      if (!Number.isFinite(height) || height <= 0) return;
      for (const frame of frames()) {
        if (frame.contentWindow === event.source) frame.style.height = `${Math.min(height, TALLEST)}px`;
      }
    });
  }
  // JupyterLab's theme need not be that of the system, which frames follow unless they are told.
  const light = document.body.dataset.jpThemeLight;
  if (light) for (const frame of frames()) frame.style.colorScheme = light === "true" ? "light" : "dark";
})();
