/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the page together: head, bar of arms, contents, sections; then draws the figures one by one. */
const SECTIONS = [
    ["findings", "What was seen", findingsSection],
    ["summary", "Arms in numbers", summarySection],
    ["stability", "Learning rates", stabilitySection, hasLadder],
    ["training", "Training", trainingSection],
    ["sink", "First-token share", sinkSection],
    ["activations", "Activations", activationsSection],
    ["gates", "Gate scores", gatesSection],
    ["sparsity", "Sparsity", sparsitySection],
    ["experts", "Experts", expertsSection, hasExperts],
    ["attention", "Attention maps", attentionSection],
    ["length", "Position and length", lengthSection],
    ["cost", "Cost", costSection],
    ["samples", "Samples", samplesSection],
    ["settings", "Settings and definitions", settingsSection],
];

/* Some sections stand only where a study has what they show. */
const sectionsOf = (study) => SECTIONS.filter(([, , , has]) => !has || has(study));

/* One chip per arm: the key of all figures, and the switch that takes an arm out of them. */
function armBar(study) {
    const chips = study.arms.map((arm) => {
        const chip = el(
            "button",
            {
                type: "button",
                class: "chip",
                "aria-pressed": "true",
                title: plain(arm.label || arm.name, 200),
                onclick: () => {
                    if (study.hidden.has(arm.index)) study.hidden.delete(arm.index);
                    else study.hidden.add(arm.index);
                    chip.setAttribute("aria-pressed", String(!study.hidden.has(arm.index)));
                    all.disabled = !study.hidden.size;
                    figuresRedraw();
                },
            },
            swatch({style: arm.style}),
            el("bdi", null, plain(arm.name, 28)),
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
                study.hidden.clear();
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
            class: "arm-bar" + (study.arms.length > 8 ? " many" : ""),
            role: "group",
            "aria-label": "Arms shown in the figures",
        },
        el("div", {class: "chips"}, chips),
        all,
    );
    return bar;
}

function contents(study) {
    const links = el(
        "ol",
        {id: "toc-list"},
        sectionsOf(study).map(([id, name]) => el("li", null, el("a", {href: "#" + id}, name))),
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
function makeSection(study, [id, name, make]) {
    try {
        return make(study);
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

function start() {
    const study = makeStudy(JSON.parse(document.getElementById("data").textContent));
    const main = el("main");
    themeApply();
    append(main, [headSection(study), armBar(study), sectionsOf(study).map((s) => makeSection(study, s))]);
    document.getElementById("page").append(contents(study), main);
    const follow = () => {
        document.documentElement.dataset.state = "drawn";
    };
    theme.listeners.push(() => {
        swatchesRedraw(document);
        figuresRedraw();
    });
    figuresDrawSoon(follow);
    figuresFollowWidth(main);
    figuresFollowPrinting(
        () => swatchesRedraw(document),
        () => swatchesRedraw(document),
    );
}

start();
