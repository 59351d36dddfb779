//! The log source: slices of this worker's partitions become rows at their windows.
//!
//! The driver of [`Slices`]: it sends what a step gives, at its windows, and only then lets the capabilities go as far
//! as the step allows. So this worker's capability is at or before w until it has taken all its partitions of w, has
//! retracted what leaves the horizon at w, and the checkpoint's frame of w is synced.

use fencepost_model::{Id, TotalCorrection, WindowId};
use timely::container::CapacityContainerBuilder;
use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::dataflow::operators::probe::Handle;
use timely::dataflow::{Scope, StreamVec};
use timely::scheduling::SyncActivator;

use super::distinct::Row;
use super::slices::{Slices, SourceParts};
use crate::checkpoint::WindowHead;
use crate::failure::Failure;
use crate::identity::FlipKey;

/// The source's streams.
pub(crate) struct SourceStreams<'scope, I: Id> {
    pub(crate) flips: StreamVec<'scope, WindowId, Row<FlipKey<I>>>,
    pub(crate) corrections: StreamVec<'scope, WindowId, Row<TotalCorrection<I>>>,
    /// A window's head, once, from the worker of partition 0.
    pub(crate) heads: StreamVec<'scope, WindowId, WindowHead>,
    /// Wakes the source, from any thread.
    pub(crate) activator: SyncActivator,
}

/// Builds the source. `confirmed` is the probe behind the totals stage.
pub(crate) fn source<'scope, I: Id>(
    scope: Scope<'scope, WindowId>,
    parts: SourceParts<I>,
    confirmed: Handle<WindowId>,
    failure: Failure,
) -> SourceStreams<'scope, I> {
    let mut builder = OperatorBuilder::new("log source".to_owned(), scope);
    let address = builder.operator_info().address;
    let activator = scope.worker().sync_activator_for(address.to_vec());
    let (flips_output, flips) = builder.new_output::<Vec<Row<FlipKey<I>>>>();
    let (corrections_output, corrections) = builder.new_output::<Vec<Row<TotalCorrection<I>>>>();
    let (heads_output, heads) = builder.new_output::<Vec<WindowHead>>();
    let mut flips_output = OutputBuilder::<_, CapacityContainerBuilder<_>>::from(flips_output);
    let mut corrections_output = OutputBuilder::<_, CapacityContainerBuilder<_>>::from(corrections_output);
    let mut heads_output = OutputBuilder::<_, CapacityContainerBuilder<_>>::from(heads_output);
    let again = scope.activator_for(address);
    let mut slices = Slices::new(parts);
    builder.build(move |mut capabilities| {
        if slices.is_empty() {
            capabilities.clear();
        }
        for capability in &mut capabilities {
            capability.downgrade(&slices.resume());
        }
        move |_frontiers| {
            let [flips, corrections, heads] = &mut capabilities[..] else { return };
            if failure.is_set() {
                return;
            }
            // Empty only once every worker has let go, and this one has not.
            let frontier = confirmed.with_frontier(|frontier| frontier.first().copied().unwrap_or(0));
            let step = match slices.step(frontier) {
                Ok(step) => step,
                Err(error) => return failure.set(error),
            };
            send(&mut flips_output, flips, step.flips);
            send(&mut corrections_output, corrections, step.corrections);
            for head in step.heads {
                heads_output.activate().session(&heads.delayed(&head.window)).give(head);
            }
            if step.frontier > *flips.time() {
                for capability in [flips, corrections, heads] {
                    capability.downgrade(&step.frontier);
                }
            }
            if step.more {
                again.activate();
            }
        }
    });
    SourceStreams { flips, corrections, heads, activator }
}

fn send<K: timely::ExchangeData>(
    output: &mut OutputBuilder<WindowId, CapacityContainerBuilder<Vec<Row<K>>>>,
    capability: &Capability<WindowId>,
    containers: Vec<(WindowId, Vec<Row<K>>)>,
) {
    let mut output = output.activate();
    for (window, mut rows) in containers {
        if !rows.is_empty() {
            output.session(&capability.delayed(&window)).give_container(&mut rows);
        }
    }
}
