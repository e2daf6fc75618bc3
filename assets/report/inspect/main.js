/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the page together. Sections stand only where there is something to show. */
const always = () => true;
const SECTIONS = [
    ["summary", "At a glance", summarySection, always],
    ["demo", "Four layers", demoSection, hasDemo],
    ["steps", "Over steps", stepsSection, (page) => page.steps],
    ["sink", "Attention", sinkSection, always],
    ["interventions", "What if", changesSection, hasChanges],
    ["activations", "Activations", activationsSection, always],
    ["gates", "Gate scores", gatesSection, hasGates],
    ["sparsity", "Sparsity", sparsitySection, hasSparsity],
    ["delta", "Linear attention", deltaSection, hasDelta],
    ["experts", "Experts", expertsSection, hasExperts],
    ["rounding", "Rounding to 8 bits", roundingSection, hasRounding],
    ["definitions", "Definitions", definitionsSection, always],
];

function start() {
    const page = makeInspection(JSON.parse(document.getElementById("data").textContent));
    const bar = page.items.length > 1 ? seriesBar(page.items, page.hidden, "Models shown in the figures") : null;
    startPage(
        page,
        headSection(page),
        bar,
        SECTIONS.filter(([, , , stands]) => stands(page)),
    );
}

start();
