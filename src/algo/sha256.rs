//! SHA-256 of short texts (FIPS 180-4), for methods that are defined by it. Not for secrets.

/// The 32 bytes of the digest.
pub fn digest(bytes: &[u8]) -> [u8; 32] {
    let mut state = START;
    let (blocks, rest) = bytes.as_chunks::<64>();
    for block in blocks {
        compress(&mut state, block);
    }
    // A one, zeros, and the length in bits: one block more, or two.
    let mut last = [0u8; 128];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    let n_blocks = if rest.len() < 56 { 1 } else { 2 };
    let end = n_blocks * 64;
    last[end - 8..end].copy_from_slice(&(bytes.len() as u64 * 8).to_be_bytes());
    for block in &last.as_chunks::<64>().0[..n_blocks] {
        compress(&mut state, block);
    }
    let mut digest = [0; 32];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

/// The digest, read as one number with the first byte highest, modulo `buckets`.
pub fn bucket(bytes: &[u8], buckets: u32) -> u32 {
    let digest = digest(bytes);
    let words = digest.as_chunks::<4>().0.iter();
    let rest = words.fold(0u64, |rest, word| {
        (rest << 32 | u64::from(u32::from_be_bytes(*word))) % u64::from(buckets)
    });
    rest as u32
}

fn compress(state: &mut [u32; 8], block: &[u8; 64]) {
    let mut words = [0u32; 64];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for at in 16..64 {
        let (near, far) = (words[at - 15], words[at - 2]);
        let s0 = near.rotate_right(7) ^ near.rotate_right(18) ^ (near >> 3);
        let s1 = far.rotate_right(17) ^ far.rotate_right(19) ^ (far >> 10);
        words[at] = words[at - 16]
            .wrapping_add(s0)
            .wrapping_add(words[at - 7])
            .wrapping_add(s1);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, constant) in words.iter().zip(ROUNDS) {
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let first = h
            .wrapping_add(s1)
            .wrapping_add(choice)
            .wrapping_add(constant)
            .wrapping_add(*word);
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        let second = s0.wrapping_add(majority);
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(second));
    }
    for (sum, word) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *sum = sum.wrapping_add(word);
    }
}

/// First 32 bits of the fractions of the square roots of the first 8 primes.
const START: [u32; 8] = [
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];

/// First 32 bits of the fractions of the cube roots of the first 64 primes.
const ROUNDS: [u32; 64] = cube_root_fractions();

/// By whole numbers alone: the largest r with r^3 <= prime * 2^96 is the root in units of 2^-32.
const fn cube_root_fractions() -> [u32; 64] {
    let mut fractions = [0; 64];
    let (mut found, mut number) = (0, 2u128);
    while found < 64 {
        let mut divisor = 2;
        while number % divisor != 0 {
            divisor += 1;
        }
        if divisor == number {
            // Roots of the primes up to 311 are below 7, and r^3 stays below 2^106.
            let (mut root, mut bit) = (0u128, 1u128 << 34);
            while bit > 0 {
                let next = root | bit;
                if next * next * next <= number << 96 {
                    root = next;
                }
                bit >>= 1;
            }
            fractions[found] = root as u32;
            found += 1;
        }
        number += 1;
    }
    fractions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        digest(bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// The first two are the examples of FIPS 180-4; the others are by Python's hashlib.
    #[test]
    fn golden() {
        assert_eq!(
            hex(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            hex(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
        );
        for (length, start) in LENGTHS {
            assert_eq!(&hex(&[b'x'; 200][..length])[..16], start, "{length} bytes");
        }
    }

    const LENGTHS: [(usize, &str); 6] = [
        (0, "e3b0c44298fc1c14"),
        (55, "d5e285683cd4efc0"),
        (56, "04c26261370ee754"),
        (63, "75220b47218278e6"),
        (64, "7ce100971f64e700"),
        (200, "aa20c23e32018340"),
    ];

    #[test]
    fn a_bucket_is_the_number_modulo_their_count() {
        // int(sha256(b"the").hexdigest(), 16) % 10_000 and of "of the", likewise % 7.
        assert_eq!(bucket(b"the", 10000), 8288);
        assert_eq!(bucket(b"of the", 10000), 2932);
        assert_eq!(bucket(b"of the", 7), 4);
    }
}
