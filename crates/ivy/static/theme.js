// Light, dark, or as the system has it; remembered on this device.

const KEY = "ivy-theme";
const THEMES = ["system", "light", "dark"];

export function startTheme(button) {
  let theme = remembered();
  const apply = () => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // Storage is switched off: it lasts until the page is loaded again.
    }
    apply();
  });
  apply();
}

function remembered() {
  try {
    const theme = localStorage.getItem(KEY);
    return THEMES.includes(theme) ? theme : "system";
  } catch {
    return "system";
  }
}
