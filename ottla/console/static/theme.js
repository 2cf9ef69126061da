// Before the page is drawn: the theme that was chosen, if any.
"use strict";
try {
  const theme = localStorage.getItem("theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch { /* no storage: the system's theme */ }
