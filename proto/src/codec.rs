//! Room proto: the gRPC codec of our generated services: prost with small buffers.
//!
//! tonic starts every call with 8 KiB for each direction, and a decoded `Bytes` field keeps the whole buffer
//! alive: a queued 256 B put then holds 8 KiB (measured: 248 MB resident after 30,000 puts). Buffers of the
//! size of a usual message cost less to make and pin little.

use prost::Message;
use std::marker::PhantomData;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

/// First size of a call's buffer, bytes; it grows to what a message needs.
const BUFFER_BYTES: usize = 512;
/// Bytes gathered before a stream's messages go to the transport.
const YIELD_BYTES: usize = 32 << 10;

/// As `tonic_prost::ProstCodec`, with buffers that fit etcd's messages.
#[derive(Debug, Clone)]
pub struct SmallCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallCodec<T, U> {
    fn default() -> Self {
        SmallCodec(PhantomData)
    }
}

impl<T, U> Codec for SmallCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(BUFFER_BYTES, YIELD_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(BUFFER_BYTES, YIELD_BYTES))
    }
}
