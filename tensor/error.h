// Exceptions of the engine and the check macro. Libraries throw; only apps/ catches, prints one
// line and chooses the exit code (2 for ConfigError and IoError on input, 1 otherwise).
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace smelt {

/// Base of every error that smelt throws on purpose.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Shapes of arguments do not fit the operation.
struct ShapeError : Error {
  using Error::Error;
};
/// An argument has a dtype that the operation does not take.
struct DTypeError : Error {
  using Error::Error;
};
/// An argument lives on the wrong device, or the device is not available.
struct DeviceError : Error {
  using Error::Error;
};
/// A configuration, an option or a combination of them is not allowed. Exit code 2.
struct ConfigError : Error {
  using Error::Error;
};
/// A file that the user named cannot be read or is damaged. Exit code 2.
struct IoError : Error {
  using Error::Error;
};
/// MPI failed or ranks disagree.
struct CommError : Error {
  using Error::Error;
};
/// The run itself failed: disk full while saving, loss not finite for too long. Exit code 1.
struct RunError : Error {
  using Error::Error;
};

}  // namespace smelt

/// Throws Type with the streamed message unless cond holds:
/// SMELT_CHECK(ShapeError, a == b, "add: x is " << a << " but y is " << b).
#define SMELT_CHECK(Type, cond, message)     \
  do {                                       \
    if (!(cond)) {                           \
      std::ostringstream smelt_check_stream; \
      smelt_check_stream << message;         \
      throw Type(smelt_check_stream.str());  \
    }                                        \
  } while (false)
