/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the page together: head, bar of arms, sections. */
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
    ["extension", "Longer windows", extensionSection, hasExtension],
    ["cost", "Cost", costSection],
    ["samples", "Samples", samplesSection],
    ["settings", "Settings and definitions", settingsSection],
];

/* Some sections stand only where a study has what they show. */
const sectionsOf = (study) => SECTIONS.filter(([, , , has]) => !has || has(study));

function start() {
    const study = makeStudy(JSON.parse(document.getElementById("data").textContent));
    const bar = seriesBar(study.arms, study.hidden, "Arms shown in the figures");
    startPage(study, headSection(study), bar, sectionsOf(study));
}

start();
