// Sets the theme that was chosen before anything is shown; without one the system's is taken.
(() => {
  try {
    const chosen = localStorage.getItem("heedful-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch { /* storage may be switched off */ }
})();
