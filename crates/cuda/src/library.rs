//! `libcuda`, opened when the first GPU engine is served.

use std::ffi::{CStr, c_char, c_int, c_void};

use libloading::Library;

use crate::driver::{Driver, DriverError, EventHandle};

const SUCCESS: c_int = 0;
const ERROR_NOT_READY: c_int = 600;
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

type Init = unsafe extern "C" fn(u32) -> c_int;
type DeviceGet = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type PrimaryCtxRetain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type PrimaryCtxRelease = unsafe extern "C" fn(c_int) -> c_int;
type CtxSetCurrent = unsafe extern "C" fn(*mut c_void) -> c_int;
type EventCall = unsafe extern "C" fn(*mut c_void) -> c_int;
type GetErrorName = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;

/// The real driver, for one device.
pub struct LibCuda {
    context: Context,
    device: c_int,
    ctx_set_current: CtxSetCurrent,
    primary_ctx_release: PrimaryCtxRelease,
    event_query: EventCall,
    event_synchronize: EventCall,
    get_error_name: GetErrorName,
    /// Keeps the functions above mapped.
    _library: Library,
}

/// The device's primary context, retained.
struct Context(*mut c_void);

// SAFETY: a CUcontext is an opaque handle that the driver lets any thread use; we never dereference it.
unsafe impl Send for Context {}
// SAFETY: as above; the driver synchronizes its own state.
unsafe impl Sync for Context {}

impl LibCuda {
    /// Opens the driver and retains the primary context of device number `ordinal`, which is the
    /// one that torch uses.
    ///
    /// # Errors
    /// No driver library, a missing symbol, or no such device.
    pub fn open(ordinal: usize) -> Result<Self, DriverError> {
        let library = open_library()?;
        // SAFETY: names and signatures are those of cuda.h.
        let (init, device_get, retain): (Init, DeviceGet, PrimaryCtxRetain) = unsafe {
            (
                symbol(&library, c"cuInit")?,
                symbol(&library, c"cuDeviceGet")?,
                symbol(&library, c"cuDevicePrimaryCtxRetain")?,
            )
        };
        // SAFETY: as above.
        let mut cuda = unsafe {
            Self {
                context: Context(std::ptr::null_mut()),
                device: 0,
                ctx_set_current: symbol(&library, c"cuCtxSetCurrent")?,
                primary_ctx_release: symbol(&library, c"cuDevicePrimaryCtxRelease_v2")?,
                event_query: symbol(&library, c"cuEventQuery")?,
                event_synchronize: symbol(&library, c"cuEventSynchronize")?,
                get_error_name: symbol(&library, c"cuGetErrorName")?,
                _library: library,
            }
        };
        let ordinal = c_int::try_from(ordinal)
            .map_err(|_| DriverError::Library(format!("device number {ordinal} is too large")))?;
        // SAFETY: flags must be 0.
        cuda.check("cuInit", unsafe { init(0) })?;
        // SAFETY: writes one int.
        let mut device = 0;
        // SAFETY: writes one int.
        cuda.check("cuDeviceGet", unsafe {
            device_get(&raw mut device, ordinal)
        })?;
        cuda.device = device;
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one pointer; released in drop.
        let retained = unsafe { retain(&raw mut context, cuda.device) };
        cuda.check("cuDevicePrimaryCtxRetain", retained)?;
        cuda.context = Context(context);
        Ok(cuda)
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), DriverError> {
        if code == SUCCESS {
            return Ok(());
        }
        let mut name = std::ptr::null();
        // SAFETY: writes a pointer to a static string, or null for an unknown code.
        let known =
            unsafe { (self.get_error_name)(code, &raw mut name) } == SUCCESS && !name.is_null();
        let name = if known {
            // SAFETY: not null, and the driver's own static C string.
            unsafe { CStr::from_ptr(name) }
                .to_string_lossy()
                .into_owned()
        } else {
            "unknown error".into()
        };
        Err(DriverError::Call { call, code, name })
    }
}

impl Drop for LibCuda {
    fn drop(&mut self) {
        if !self.context.0.is_null() {
            // SAFETY: balances the retain in `open`. Its result does not matter at this point.
            unsafe { (self.primary_ctx_release)(self.device) };
        }
    }
}

impl Driver for LibCuda {
    fn make_current(&self) -> Result<(), DriverError> {
        // SAFETY: the context is retained as long as `self` lives.
        self.check("cuCtxSetCurrent", unsafe {
            (self.ctx_set_current)(self.context.0)
        })
    }

    fn event_is_complete(&self, event: EventHandle) -> Result<bool, DriverError> {
        // SAFETY: the caller keeps the event alive, see `tulip`'s CudaEvent.
        match unsafe { (self.event_query)(event.0 as *mut c_void) } {
            ERROR_NOT_READY => Ok(false),
            code => self.check("cuEventQuery", code).map(|()| true),
        }
    }

    fn event_synchronize(&self, event: EventHandle) -> Result<(), DriverError> {
        // SAFETY: as above.
        self.check("cuEventSynchronize", unsafe {
            (self.event_synchronize)(event.0 as *mut c_void)
        })
    }
}

fn open_library() -> Result<Library, DriverError> {
    let mut last = String::new();
    for name in NAMES {
        // SAFETY: the driver's initializers have no preconditions.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok(library),
            Err(error) => last = described(&error),
        }
    }
    Err(DriverError::Library(last))
}

/// The loader's own words, which are the error's source: the error says only which call failed.
fn described(error: &libloading::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// # Safety
/// `T` is the function pointer type of the symbol `name`.
unsafe fn symbol<T: Copy>(library: &Library, name: &CStr) -> Result<T, DriverError> {
    // SAFETY: passed on to the caller.
    match unsafe { library.get::<T>(name.to_bytes_with_nul()) } {
        Ok(symbol) => Ok(*symbol),
        Err(error) => Err(DriverError::Library(described(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_the_error_says_so() {
        match LibCuda::open(0) {
            Err(DriverError::Library(message)) => assert!(message.contains("libcuda"), "{message}"),
            // A host with a driver, with or without a device.
            Err(DriverError::Call { call, .. }) => assert!(call.starts_with("cu")),
            Ok(cuda) => cuda.make_current().unwrap(),
        }
    }
}
