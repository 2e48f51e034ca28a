// Tabs after the pattern of the ARIA authoring practices: one stop of Tab, arrow keys between them.

export function tabs(list, onChange) {
  const all = [...list.querySelectorAll("[role=tab]")];
  const choose = (tab, focus) => {
    for (const each of all) {
      const on = each === tab;
      each.setAttribute("aria-selected", String(on));
      each.tabIndex = on ? 0 : -1;
      document.getElementById(each.getAttribute("aria-controls")).hidden = !on;
    }
    if (focus) tab.focus();
    onChange(tab.id);
  };
  for (const tab of all) tab.addEventListener("click", () => choose(tab, false));
  list.addEventListener("keydown", (event) => {
    const at = all.indexOf(document.activeElement);
    const next = {
      ArrowRight: (at + 1) % all.length,
      ArrowLeft: (at + all.length - 1) % all.length,
      Home: 0,
      End: all.length - 1,
    }[event.key];
    if (at < 0 || next === undefined) return;
    event.preventDefault();
    choose(all[next], true);
  });
}
