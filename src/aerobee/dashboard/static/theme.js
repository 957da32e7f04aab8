// Runs before the page is painted, so that it does not flash in the other theme.
(function () {
  "use strict";
  try {
    var theme = localStorage.getItem("aerobee.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    if (localStorage.getItem("aerobee.zone") === "local") document.documentElement.dataset.zone = "local";
  } catch (error) { /* without storage the system's theme is used */ }
})();
