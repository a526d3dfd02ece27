// Counting the floating-point operations of a model's products as they are executed: the measured
// side of the budgets in moe/budget.h. Off unless a FlopCounter lives; then operations look at one
// pointer and add one number per call.
//
// Counted at the public entry of an operation, from the sizes it is given:
//   matmul, grouped_matmul, grouped_outer_   2 m n k per product; grouped ones by the rows there
//   attention                                4 A D per (query, key) pair that the ranges allow:
//                                            scores and mix
//   attention_backward                       8 A D per pair: the gradients of q, k, v and of the
//                                            probabilities. The scores that it computes again are
//                                            not counted: keeping them would give the same result.
//   linear_cross_entropy                     2 H V per token with a target, 6 H V with gradients
// Norms, activations, softmax, copies and the optimizer are no products and count nothing. What
// checkpoint() runs a second time counts a second time: it is executed.
#pragma once

namespace smelt {

/// Counts for as long as it lives what the thread that made it executes; operations share their
/// work with other threads behind their entry, so nothing is missed. Counters nest: each sees
/// everything that is executed during its life. Destroy them in reverse order of creation.
class FlopCounter {
 public:
  FlopCounter() : outer_(innermost_) { innermost_ = this; }
  ~FlopCounter() { innermost_ = outer_; }
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  /// FLOPs so far; exact below 2^53.
  double total() const { return products_ + attention_; }
  double products() const { return products_; }    // matrix products, those of the loss included
  double attention() const { return attention_; }  // scores, mix and their gradients

  /// Whether this thread is counted. Operations ask before they work out a count that takes a loop.
  static bool counting() { return innermost_ != nullptr; }
  /// Called by operations: adds to every counter of this thread.
  static void add_products(double flops) {
    for (FlopCounter* c = innermost_; c != nullptr; c = c->outer_) c->products_ += flops;
  }
  static void add_attention(double flops) {
    for (FlopCounter* c = innermost_; c != nullptr; c = c->outer_) c->attention_ += flops;
  }

 private:
  static inline thread_local FlopCounter* innermost_ = nullptr;
  FlopCounter* outer_;
  double products_ = 0, attention_ = 0;
};

}  // namespace smelt
