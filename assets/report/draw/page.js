/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of a page: contents, the bar of what is compared (arms of a study, models of an inspection), sections. */

/* One chip for each of items {index, name, label, style}: the key of all figures, and the switch that takes one out of
 * them. */
function seriesBar(items, hidden, label) {
    const chips = items.map((item) => {
        const chip = el(
            "button",
            {
                type: "button",
                class: "chip",
                "aria-pressed": "true",
                title: plain(item.label || item.name, 200),
                onclick: () => {
                    if (hidden.has(item.index)) hidden.delete(item.index);
                    else hidden.add(item.index);
                    chip.setAttribute("aria-pressed", String(!hidden.has(item.index)));
                    all.disabled = !hidden.size;
                    figuresRedraw();
                },
            },
            swatch({style: item.style}),
            el("bdi", null, plain(item.name, 28)),
        );
        return chip;
    });
    const all = el(
        "button",
        {
            type: "button",
            class: "tool",
            disabled: true,
            onclick: () => {
                hidden.clear();
                for (const chip of chips) chip.setAttribute("aria-pressed", "true");
                all.disabled = true;
                figuresRedraw();
            },
        },
        "Show all",
    );
    const bar = el(
        "div",
        {
            class: "arm-bar" + (items.length > 8 ? " many" : ""),
            role: "group",
            "aria-label": label,
        },
        el("div", {class: "chips"}, chips),
        all,
    );
    return bar;
}

function contents(sections) {
    const links = el(
        "ol",
        {id: "toc-list"},
        sections.map(([id, name]) => el("li", null, el("a", {href: "#" + id}, name))),
    );
    const button = el(
        "button",
        {
            type: "button",
            class: "tool toc-button",
            "aria-expanded": "false",
            "aria-controls": "toc-list",
            onclick: () => {
                const open = button.getAttribute("aria-expanded") === "false";
                button.setAttribute("aria-expanded", String(open));
                nav.classList.toggle("open", open);
            },
        },
        "☰ Contents",
    );
    const nav = el(
        "nav",
        {class: "toc", "aria-label": "Contents"},
        el("div", {class: "toc-head"}, button, themeButton()),
        links,
    );
    links.addEventListener("click", () => {
        button.setAttribute("aria-expanded", "false");
        nav.classList.remove("open");
    });
    return nav;
}

/* A section that fails says so in its place; the rest of the page stands. */
function makeSection(subject, [id, name, make]) {
    try {
        return make(subject);
    } catch (problem) {
        return el(
            "section",
            {id, "data-failed": String((problem && problem.stack) || problem)},
            el("h2", null, name),
            el(
                "p",
                {class: "empty"},
                "This section could not be made: " + ((problem && problem.message) || problem),
            ),
        );
    }
}

/* sections: [[id, name, make(subject)]] */
function startPage(subject, head, bar, sections) {
    const main = el("main");
    themeApply();
    append(main, [head, bar, sections.map((s) => makeSection(subject, s))]);
    document.getElementById("page").append(contents(sections), main);
    theme.listeners.push(() => {
        swatchesRedraw(document);
        figuresRedraw();
    });
    figuresDrawSoon(() => {
        document.documentElement.dataset.state = "drawn";
    });
    figuresFollowWidth(main);
    figuresFollowPrinting(
        () => swatchesRedraw(document),
        () => swatchesRedraw(document),
    );
}
