// The button that changes between light and dark.

import { byId } from "./elements.js";

export function themeButton(onChange) {
  const button = byId("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => {
    const chosen = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    try {
      localStorage.setItem("heedful-theme", chosen);
    } catch { /* storage may be switched off */ }
    label();
    onChange();
  });
  system.addEventListener("change", () => { label(); onChange(); });
  label();
}
