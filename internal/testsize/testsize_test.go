package testsize

import "testing"

func TestPickFollowsTheEnvironment(t *testing.T) {
	for value, want := range map[string]int{"": 3, "short": 3, "full": 3000, "FULL": 3} {
		t.Setenv(EnvSize, value)
		if got := Pick(3, 3000); got != want {
			t.Errorf("%s=%q: %d, want %d", EnvSize, value, got, want)
		}
	}
}

func TestSeedIsRandomOrTheGivenOne(t *testing.T) {
	t.Setenv(EnvSeed, "")
	if a, b := Seed(t), Seed(t); a == b {
		t.Errorf("two random seeds are both %d", a)
	}
	t.Setenv(EnvSeed, "-42")
	if got := Seed(t); got != -42 {
		t.Errorf("got seed %d, want the given one", got)
	}
}

func TestRandReplaysEachPurpose(t *testing.T) {
	if Rand(7, "writers").Uint64() != Rand(7, "writers").Uint64() {
		t.Error("the same seed and purpose gave different numbers")
	}
	if Rand(7, "writers").Uint64() == Rand(7, "kills").Uint64() {
		t.Error("two purposes share their numbers")
	}
	if Rand(7, "writers").Uint64() == Rand(8, "writers").Uint64() {
		t.Error("two seeds share their numbers")
	}
}
