//! The states that a pool has gone through, and which of them may be found after a crash.

use super::pool::ModelPool;
use super::step::Step;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// States of the model, one after each step that changed it or may have. They share what they have in common.
#[derive(Clone, Debug)]
pub struct History {
    states: Vec<(Arc<ModelPool>, Option<Step>)>,
    acknowledged: usize,
}

impl Default for History {
    fn default() -> Self {
        Self::new(ModelPool::default())
    }
}

impl History {
    /// Begins with a state that is durable.
    #[must_use]
    pub fn new(first: ModelPool) -> Self {
        Self { states: vec![(Arc::new(first), None)], acknowledged: 0 }
    }

    /// The newest state.
    #[must_use]
    pub fn current(&self) -> &Arc<ModelPool> {
        &self.states[self.states.len() - 1].0
    }

    /// The state after `index` steps.
    #[must_use]
    pub fn state(&self, index: usize) -> Option<&Arc<ModelPool>> {
        self.states.get(index).map(|(state, _)| state)
    }

    /// The step that led to the state `index`.
    #[must_use]
    pub fn step(&self, index: usize) -> Option<&Step> {
        self.states.get(index).and_then(|(_, step)| step.as_ref())
    }

    /// Number of states.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.states.len()
    }

    /// Adds the state after a step. A step that was begun and not seen to end belongs here as well: a crash
    /// may leave its effect behind or not.
    pub fn push(&mut self, step: Step, state: ModelPool) {
        self.states.push((Arc::new(state), Some(step)));
    }

    /// Everything so far is durable.
    pub const fn acknowledge(&mut self) {
        self.acknowledged = self.states.len() - 1;
    }

    /// Index of the newest state that must not be lost.
    #[must_use]
    pub const fn acknowledged(&self) -> usize {
        self.acknowledged
    }

    /// Indices of the states that may be found after a crash.
    #[must_use]
    pub const fn survivors(&self) -> RangeInclusive<usize> {
        self.acknowledged..=self.states.len() - 1
    }

    /// Looks for the state that was found after a crash, the newest first; `differs` says how a state differs
    /// from what was found. Answers with its index, or with every candidate and its difference.
    pub fn find<D>(
        &self,
        mut differs: impl FnMut(&ModelPool) -> Option<D>,
    ) -> Result<usize, Vec<(usize, D)>> {
        let mut differences = Vec::new();
        for index in self.survivors().rev() {
            match differs(&self.states[index].0) {
                None => return Ok(index),
                Some(difference) => differences.push((index, difference)),
            }
        }
        Err(differences)
    }

    /// Goes on from the state that was found: what came after it never happened, and it is durable.
    pub fn resume(&mut self, index: usize) {
        assert!(self.survivors().contains(&index), "only a survivor can be found");
        self.states.truncate(index + 1);
        self.acknowledge();
    }

    /// Goes on from an earlier state, although later ones were acknowledged: what came after it was given up.
    ///
    /// # Panics
    /// If there was no such state.
    pub fn go_back(&mut self, index: usize) {
        assert!(index < self.states.len(), "there is such a state");
        self.states.truncate(index + 1);
        self.acknowledge();
    }

    /// Forgets the states that cannot be found any more, so that a long life does not fill the memory.
    pub fn forget_acknowledged(&mut self) {
        self.states.drain(..self.acknowledged);
        self.acknowledged = 0;
    }

    /// Replaces the newest state, whose meaning has not changed (a name got known).
    pub fn amend(&mut self, state: ModelPool) {
        if let Some((last, _)) = self.states.last_mut() {
            *last = Arc::new(state);
        }
    }
}
