#include "apps/common/signals.h"

#include <signal.h>
#include <unistd.h>

namespace smelt {
namespace {

volatile sig_atomic_t received = 0;
volatile sig_atomic_t interrupts = 0;

// Only async-signal-safe calls here.
void on_signal(int number) {
  received = number;
  if (number != SIGINT) return;
  interrupts = interrupts + 1;
  if (interrupts > 1) _exit(130);
}

}  // namespace

void install_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // a write of metrics or a checkpoint goes on
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) sigaction(number, &action, nullptr);
}

bool stop_requested() { return received != 0; }

const char* stop_signal_name() {
  switch (received) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      return "";
  }
}

void clear_stop_request() {
  received = 0;
  interrupts = 0;
}

}  // namespace smelt
