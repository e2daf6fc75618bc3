/* SPDX-License-Identifier: Apache-2.0 */
/* Light and dark, and the colours of series. The page follows the system until its reader chooses;
 * printing is always light. Canvases do not follow CSS by themselves, so whoever draws asks here and is
 * told when to draw again. */

/* Ten colours told apart under the common colour-vision deficiencies (smallest OKLab distance, over
 * normal, protan, deutan and tritan sight, 0.04 in light, 0.05 in dark), each with a contrast of at
 * least 3 to its background. Past ten series the colours come again with dashes and another marker. The
 * first one is neutral: it is for the baseline. */
const SERIES_LIGHT = [
    "#5b6472",
    "#1f6fc4",
    "#c9500a",
    "#2a9d6f",
    "#6f1a86",
    "#b3851b",
    "#7c2526",
    "#a77db8",
    "#3b2fa5",
    "#c2315f",
];
const SERIES_DARK = [
    "#a3adba",
    "#5ea4f0",
    "#f08a4b",
    "#3fe0a0",
    "#b45cd0",
    "#e6d23a",
    "#d0605e",
    "#f2b3ee",
    "#8478f0",
    "#9c8415",
];
const SERIES_DASHES = [[], [6, 3], [2, 3], [9, 3, 2, 3]];
const SERIES_MARKERS = ["circle", "rect", "triangle", "rectRot"];

const theme = {choice: "auto" /* auto, light, dark */, printing: false, listeners: []};

function themeIsDark() {
    if (theme.printing) return false;
    return theme.choice === "auto"
        ? matchMedia("(prefers-color-scheme: dark)").matches
        : theme.choice === "dark";
}

function themeApply() {
    document.documentElement.dataset.theme = themeIsDark() ? "dark" : "light";
    for (const listener of theme.listeners) listener();
}

/* A colour of the style sheet, by the name of its variable. */
function cssColour(name) {
    return getComputedStyle(document.documentElement)
        .getPropertyValue("--" + name)
        .trim();
}

/* Look of series i: {index, dash, marker}; its colour depends on the theme, so it is asked for when
 * drawing. */
function seriesStyle(i) {
    const round = Math.floor(i / SERIES_LIGHT.length) % SERIES_DASHES.length;
    return {index: i, dash: SERIES_DASHES[round], marker: SERIES_MARKERS[round]};
}

function seriesColour(style, alpha = 1) {
    const colours = themeIsDark() ? SERIES_DARK : SERIES_LIGHT;
    return withAlpha(colours[style.index % colours.length], alpha);
}

function withAlpha(hex, alpha) {
    return (
        hex +
        Math.round(255 * alpha)
            .toString(16)
            .padStart(2, "0")
    );
}

/* viridis at 17 evenly spaced points (BIDS/colormap, CC0), linear between them. */
const VIRIDIS = [
    "440154",
    "48186a",
    "472d7b",
    "424086",
    "3b528b",
    "33638d",
    "2c728e",
    "26828e",
    "21918c",
    "1fa088",
    "28ae80",
    "3fbc73",
    "5ec962",
    "84d44b",
    "addc30",
    "d8e219",
    "fde725",
].map((hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)));

function viridis(t) {
    const at = clamp(t, 0, 1) * (VIRIDIS.length - 1);
    const i = Math.min(VIRIDIS.length - 2, Math.floor(at));
    const f = at - i;
    return VIRIDIS[i].map((v, c) => Math.round(v + f * (VIRIDIS[i + 1][c] - v)));
}

const rgb = (c) => "rgb(" + c.join(",") + ")";
/* Black or white, whichever can be read on colour c. */
const inkOn = (c) => (0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2] > 140 ? "#111" : "#fff");

/* The button that goes round auto, light, dark. */
function themeButton() {
    const names = {auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark"};
    const order = ["auto", "light", "dark"];
    const button = el("button", {
        type: "button",
        class: "tool theme",
        onclick: () => {
            theme.choice = order[(order.indexOf(theme.choice) + 1) % 3];
            show();
            themeApply();
        },
    });
    const show = () => {
        button.textContent = names[theme.choice];
        button.setAttribute("aria-label", "Colours: " + theme.choice);
    };
    show();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themeApply);
    return button;
}
