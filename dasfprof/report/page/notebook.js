// Runs in a notebook, next to the frame of a report. It sets the height of frames to that of their pages, and their
// theme to that of the notebook, see `notebook.py`.

(() => {
  "use strict";
  const TALLEST = 20000; // pixels
  /** @returns {NodeListOf<HTMLIFrameElement>} */
  const frames = () => document.querySelectorAll("iframe.dasfprof-report");
  /** @type {any} The window of the notebook, which all outputs share. */
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
  // JupyterLab's theme may differ from the theme of the system, which frames use by default.
  const light = document.body.dataset.jpThemeLight;
  if (light) for (const frame of frames()) frame.style.colorScheme = light === "true" ? "light" : "dark";
})();
