// Stands for the precompiled Boost.Test headers (tests/CMakeLists.txt); holds no code.
